// Package harperfake is a stand-in for nodes of Harper, for tests: it serves records
// with blob attributes over HTTP the way two generations of real nodes were seen to,
// each kind of damage included. It holds none of Harper's code.
//
// An old node ([Old]) reads a blob's file while it answers: a file that is gone or cut
// short leaves the reader without an answer or in the middle of a body. A new node
// ([New]) looks at the file first and answers 404, 500 or 503, but what goes wrong
// after the first byte is still a 200 that ends early. Neither says anything in answer
// to a HEAD.
package harperfake

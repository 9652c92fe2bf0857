// Package harper looks at blobs that records of Harper nodes refer to, over the nodes'
// own HTTP ports, and writes nothing there; at most it asks a node to repair itself.
//
// A [Cluster] is one blob collection spread over nodes. It enumerates records as a
// [refs.Reader], and gives an [objstore.Reader] ([Store]) whose every Stat is a full,
// timed GET of the blob: a HEAD says the same of a blob that is whole and of one that is
// gone, and the status of a GET is sent before the bytes are read. Each blob of each node
// is an object of its own:
//
//	harper://NODE/PATH/KEY.ATTRIBUTE
//
// PATH is the table's REST path; KEY is percent-encoded, dots included, because in a
// request the last dot begins the attribute.
//
// Nothing is said against a blob until a control, a blob known to be good on the same
// node, was read whole after the look had begun. A node that fails its control is left
// alone for a while; every verdict about it is then undecided (node_unhealthy).
//
// Requests never carry a condition (it is answered from the record's version, whatever
// became of the file) or a range (it is ignored), and no blob found damaged is read more
// often than once a look: on some builds a read writes the damaged length into the
// record that is cached.
package harper

// Package servertest starts the servers that tests talk to: S3 in process
// ([S3]), a real S3 server ([Versitygw]), and a logging, fault-making proxy
// before any other ([Proxy]).
//
// A server that this machine does not have skips the test, unless
// RECONCILE_TEST_REQUIRE (a list such as "postgres,s3") says that it must be there.
package servertest

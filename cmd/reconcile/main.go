// Command reconcile checks that every file a Lance table references exists in the
// object store, and says what could be done about those that do not.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

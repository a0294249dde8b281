// Command monit replaces monit 5.2.5 in the test stemcell; see test/stemcell/monit.
package main

import (
	"fmt"
	"os"

	"bosh-kubernetes-cpi/test/stemcell/monit"
)

func main() {
	if err := monit.Command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "monit:", err)
		os.Exit(1)
	}
}

// Command bosh-blobstore-dav replaces bosh-davcli in the test stemcell; see test/stemcell/dav.
package main

import (
	"context"
	"fmt"
	"os"

	"bosh-kubernetes-cpi/test/stemcell/dav"
)

func main() {
	if err := dav.Run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bosh-blobstore-dav:", err)
		os.Exit(1)
	}
}

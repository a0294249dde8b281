package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

const usage = `cni-shim is a CNI plugin: container runtimes run it, with CNI_COMMAND in its environment.
To put it on a node, keep it there, check it, or take it away:

  cni-shim install|verify|uninstall [-h]`

func main() {
	// A runtime always sets CNI_COMMAND (specification, section 2: Execution Protocol, Parameters).
	if os.Getenv("CNI_COMMAND") != "" || len(os.Args) < 2 {
		os.Exit(serve())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "cni-shim:", err)
		os.Exit(1)
	}
}

// serve answers the one CNI command of the environment.
//
// The delegate's answer is printed at the end and as it came: what skel checks after ADD must not
// follow a result with an error, and a result's fields unknown to this program must not be lost.
func serve() int {
	var shim shim
	failed := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: shim.add, Del: shim.del, Check: shim.check, Status: shim.status, GC: shim.gc,
	}, version.VersionsStartingFrom("0.3.1"), usage)
	if failed == nil {
		if _, err := os.Stdout.Write(shim.answer); err == nil {
			return 0
		}
		failed = types.NewError(types.ErrIOFailure, "the result cannot be written", "")
	}
	printError(failed, shim.version)
	return 1
}

// printError prints the document of the specification's section 5: Result Types, Error. skel's own
// leaves out cniVersion.
func printError(failed *types.Error, cniVersion string) {
	if cniVersion == "" {
		cniVersion = version.Current()
	}
	_ = json.NewEncoder(os.Stdout).Encode(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cniVersion, failed})
}

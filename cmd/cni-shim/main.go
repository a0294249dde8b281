package main

import (
	"cmp"
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

const usage = `cni-shim is a CNI plugin that lets Pods request their addresses. Container runtimes run it with CNI_COMMAND set.

As root on a node, you can also run:

  cni-shim install [flags]     Install or update cni-shim on this node
  cni-shim verify [flags]      Check that cni-shim is installed and up to date
  cni-shim uninstall [flags]   Uninstall cni-shim from this node

Run "cni-shim COMMAND -h" for the flags of a command.`

func main() {
	// A runtime always sets CNI_COMMAND (specification, section 2: Execution Protocol, Parameters).
	if os.Getenv("CNI_COMMAND") != "" || len(os.Args) < 2 {
		os.Exit(serve())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runInstaller(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "cni-shim:", err)
		os.Exit(1)
	}
}

// serve runs the CNI command of the environment and returns the exit status.
//
// It prints the delegate's output unchanged, to keep fields that this program does not know. It prints only after skel returns: skel
// runs checks after ADD, and an error must not follow a result.
func serve() int {
	var shim shim
	cniErr := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: shim.add, Del: shim.del, Check: shim.check, Status: shim.status, GC: shim.gc,
	}, version.VersionsStartingFrom("0.3.1"), usage)
	if cniErr == nil {
		if _, err := os.Stdout.Write(shim.output); err == nil {
			return 0
		}
		cniErr = types.NewError(types.ErrIOFailure, "cannot write the result", "")
	}
	// The error document (specification, section 5: Result Types, Error) has the cniVersion that skel omits.
	_ = json.NewEncoder(os.Stdout).Encode(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cmp.Or(shim.version, version.Current()), cniErr})
	return 1
}

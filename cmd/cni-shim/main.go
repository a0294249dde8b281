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

const usage = `cni-shim is a CNI plugin that lets Pods request their addresses. Container runtimes run it with CNI_COMMAND in its
environment. To install it on a node, verify the installation, or uninstall it, run one of these commands as root on the node:

  cni-shim install [flags]
  cni-shim verify [flags]
  cni-shim uninstall [flags]

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
// It prints the delegate's output unchanged, to keep fields that this program does not know, and only after skel has finished: skel
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
	printError(cniErr, shim.version)
	return 1
}

// printError prints an error document (specification, section 5: Result Types, Error). The document that skel prints has no
// cniVersion.
func printError(cniErr *types.Error, cniVersion string) {
	if cniVersion == "" {
		cniVersion = version.Current()
	}
	_ = json.NewEncoder(os.Stdout).Encode(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cniVersion, cniErr})
}

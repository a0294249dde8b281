// Command embedded starts and stops the embedded Kubernetes cluster of package embedded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"bosh-kubernetes-cpi/test/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: embedded up|down|registry|bridge [flags]")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	dir := flags.String("dir", "", "folder of the cluster's (or the registry's) state")
	port := flags.Int("port", 0, "port of the registry")
	node := flags.String("node", "", "name of the node to bridge")
	nodes := flags.Int("nodes", 1, "number of nodes, 1 or 2")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("-dir is missing")
	}
	if *nodes < 1 || *nodes > len(embedded.NodeNames) {
		return fmt.Errorf("-nodes must be from 1 to %d", len(embedded.NodeNames))
	}
	tell := func(line string) { fmt.Fprintln(os.Stdout, "  "+line) }
	switch args[0] {
	case "registry":
		return embedded.ServeRegistry(*port, *dir)
	case "bridge":
		return embedded.NewCluster(filepath.Dir(*dir), len(embedded.NodeNames)).ServeBridge(ctx, *node)
	case "down":
		return embedded.NewCluster(*dir, len(embedded.NodeNames)).Down(ctx, tell)
	case "up":
		return embedded.NewCluster(*dir, *nodes).Up(ctx, tell)
	}
	return fmt.Errorf("%s is none of up, down, registry, bridge", args[0])
}

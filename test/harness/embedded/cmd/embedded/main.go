// Command embedded starts and stops the embedded Kubernetes cluster of package embedded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"bosh-kubernetes-cpi/test/harness/embedded"
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
		return fmt.Errorf("usage: embedded up|down|registry|bridge|forward [flags]")
	}
	if args[0] == "forward" {
		return forward(ctx, args[1:])
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	dir := flags.String("dir", "", "`directory` with the state of the cluster or the registry")
	port := flags.Int("port", 0, "`port` of the registry")
	node := flags.String("node", "", "`name` of the node to bridge")
	address := flags.String("address", "", "`address` of the node to bridge")
	nodes := flags.Int("nodes", 1, "`number` of nodes, 1 or 2")
	small := flags.Bool("small", false, "omit the cluster's DNS and the CSI driver; run up again without this flag to add them")
	image := flags.String("vm-node", "", "`directory` with the VM node's image (default: no VM node)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("-dir is required")
	}
	if *nodes < 1 || *nodes > len(embedded.NodeNames) {
		return fmt.Errorf("-nodes must be from 1 to %d", len(embedded.NodeNames))
	}
	progress := func(line string) { fmt.Fprintln(os.Stdout, "  "+line) }
	switch args[0] {
	case "registry":
		return embedded.ServeRegistry(*port, *dir)
	case "bridge":
		return embedded.NewCluster(filepath.Dir(*dir), len(embedded.NodeNames)).ServeBridge(ctx, *node, *address)
	case "down":
		return embedded.NewCluster(*dir, len(embedded.NodeNames)).Down(ctx, progress)
	case "up":
		cluster := embedded.NewCluster(*dir, *nodes)
		cluster.VM.Image, cluster.Small = *image, *small
		return cluster.Up(ctx, progress)
	}
	return fmt.Errorf("unknown command %q; use up, down, registry, bridge or forward", args[0])
}

// forward forwards connections from FROM to TO for each argument FROM=TO, until the context is canceled.
func forward(ctx context.Context, pairs []string) error {
	for _, pair := range pairs {
		from, to, _ := strings.Cut(pair, "=")
		if err := embedded.Forward(from, to); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

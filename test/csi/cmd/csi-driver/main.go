// Command csi-driver serves the CSI driver for tests on a unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"bosh-kubernetes-cpi/test/csi/driver"
	"bosh-kubernetes-cpi/test/csi/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "csi-driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("csi-driver", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the volumes, the same for all nodes")
	socket := flags.String("socket", "", "unix socket to answer on")
	node := flags.String("node", "", "name of the node to serve")
	controller := flags.Bool("controller", false, "serve the controller; one process only")
	kubelet := flags.String("kubelet", "", "the kubelet's root folder, to be registered there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *socket == "" || *node == "" && !*controller {
		return errors.New("-dir, -socket and one of -node and -controller are needed")
	}
	folder, err := store.Open(*dir)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	served, err := driver.New(folder, driver.Options{Controller: *controller, Node: *node, Log: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 2)
	go func() { done <- served.Serve(ctx, *socket) }()
	servers := 1
	if *kubelet != "" {
		servers++
		go func() { done <- served.Register(ctx, *kubelet, *socket) }()
	}
	var failures []error
	for range servers {
		err := <-done
		cancel(err) // one without the other is of no use
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

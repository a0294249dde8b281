// Command csi-driver serves the CSI driver for tests on a unix socket. With -images, it only prints the image files of the node's
// volumes, one per line.
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

	"bosh-kubernetes-cpi/test/harness/csi/driver"
	"bosh-kubernetes-cpi/test/harness/csi/store"
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
	dir := flags.String("dir", "", "`directory` of the volumes, the same for all nodes")
	name := flags.String("name", driver.Name, "`name` of the driver; a cluster can have several drivers")
	socket := flags.String("socket", "", "`path` of the unix socket to serve on")
	node := flags.String("node", "", "`name` of the node to serve")
	controller := flags.Bool("controller", false, "serve the controller; only one process may serve it")
	kubelet := flags.String("kubelet", "", "root `directory` of the kubelet to register with")
	images := flags.Bool("images", false, "print the image files of the node's volumes, and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *images && (*dir == "" || *node == ""):
		return errors.New("-images requires -dir and -node")
	case !*images && (*dir == "" || *socket == "" || *node == "" && !*controller):
		return errors.New("set -dir, -socket, and -node or -controller")
	}
	opened, err := store.Open(*dir)
	if err != nil {
		return err
	}
	if *images {
		return printImages(opened, *node)
	}
	options := driver.Options{Name: *name, Controller: *controller, Node: *node, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	d, err := driver.New(opened, options)
	if err != nil {
		return err
	}
	return serve(ctx, d, *socket, *kubelet)
}

func printImages(s *store.Store, node string) error {
	images, err := s.ImagesOn(node)
	for _, image := range images {
		fmt.Fprintln(os.Stdout, image)
	}
	return err
}

// serve serves the driver on the socket, and its registration if kubelet is not empty.
func serve(ctx context.Context, d *driver.Driver, socket, kubelet string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 2)
	go func() { done <- d.Serve(ctx, socket) }()
	servers := 1
	if kubelet != "" {
		servers++
		go func() { done <- d.Register(ctx, kubelet, socket) }()
	}
	var failures []error
	for range servers {
		err := <-done
		cancel(err) // stops the other server, too
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

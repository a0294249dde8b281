package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"bosh-kubernetes-cpi/cmd/cni-shim/install"
)

// runInstaller runs one of the commands install, verify and uninstall.
func runInstaller(ctx context.Context, name string, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	options := install.Options{Program: program}
	var subnets, namespaces string
	var watch, wait bool
	var interval time.Duration
	flags := flag.NewFlagSet("cni-shim "+name, flag.ContinueOnError)
	flags.StringVar(&options.BinaryDir, "bin-dir", "/opt/cni/bin", "`folder` in which the container runtime looks for CNI plugins")
	flags.StringVar(&options.ConfigDir, "conf-dir", "/etc/cni/net.d",
		"`folder` in which the container runtime looks for network configurations")
	switch name {
	case "install", "verify":
		flags.StringVar(&options.Server, "server", install.InClusterServer(), "`URL` at which the node reaches the API server")
		flags.StringVar(&options.ServiceAccount, "service-account", "/var/run/secrets/kubernetes.io/serviceaccount",
			"`folder` with the files token and ca.crt of a service account")
		flags.StringVar(&options.TokenFor, "token-for", "",
			"request a token for the service account `NAMESPACE/NAME`, with the token in -service-account "+
				"(default: use the token in -service-account)")
		flags.StringVar(&namespaces, "namespaces", "", "comma-separated `namespaces` with Pods that may request addresses (default: all)")
		flags.StringVar(&options.Annotation, "annotation", "", "`annotation` of Pods with the requested addresses "+
			"(default \""+install.DefaultAnnotation+"\")")
		flags.StringVar(&subnets, "subnets", "", "comma-separated `CIDRs` of the addresses, "+
			"for plugins that require a prefix length, such as static")
		flags.DurationVar(&options.Timeout, "timeout", 0, "how long to wait for the API server when a Pod starts, "+
			"for example 5s (default 10s)")
	}
	switch name {
	case "install":
		flags.BoolVar(&watch, "watch", false, "keep running, renew the token, and follow changes of the node's network configuration")
		flags.DurationVar(&interval, "interval", 10*time.Second, "with -watch: interval between checks for changes")
	case "uninstall":
		flags.BoolVar(&wait, "wait", false, "keep running after the files are removed, until the process is terminated")
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if subnets != "" {
		options.Subnets = strings.Split(subnets, ",")
	}
	if namespaces != "" {
		options.Namespaces = strings.Split(namespaces, ",")
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%s: unexpected argument %q", name, flags.Arg(0))
	case watch && interval <= 0:
		return errors.New("-interval is not positive")
	case watch:
		return options.Watch(ctx, interval, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	return runOnce(ctx, name, options, wait)
}

func runOnce(ctx context.Context, name string, options install.Options, wait bool) error {
	switch name {
	case "install":
		_, err := options.Install(ctx)
		return err
	case "verify":
		return options.Verify(ctx)
	case "uninstall":
		if err := options.Uninstall(); err != nil {
			return err
		}
		if wait {
			<-ctx.Done()
		}
		return nil
	}
	return errors.New("unknown command " + name + "\n" + usage)
}

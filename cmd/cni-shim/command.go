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

// command runs the program as what it is beside a plugin: its own installer.
func command(ctx context.Context, name string, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	options := install.Options{Program: program}
	var subnets, namespaces string
	var watch, wait bool
	var interval time.Duration
	flags := flag.NewFlagSet("cni-shim "+name, flag.ContinueOnError)
	flags.StringVar(&options.BinaryDir, "bin-dir", "/opt/cni/bin", "where the node's runtime finds CNI plugins")
	flags.StringVar(&options.ConfigDir, "conf-dir", "/etc/cni/net.d", "where the node's runtime finds its networks")
	switch name {
	case "install", "verify":
		flags.StringVar(&options.Server, "server", install.ServerOfPod(), "URL of the API server as the node reaches it")
		flags.StringVar(&options.ServiceAccount, "service-account", "/var/run/secrets/kubernetes.io/serviceaccount",
			"folder with token and ca.crt")
		flags.StringVar(&options.TokenFor, "token-for", "",
			"service account, as NAMESPACE/NAME, whose token the node gets; it is requested with the one in -service-account, and outlives that")
		flags.StringVar(&namespaces, "namespaces", "", "namespaces whose Pods may ask for addresses, joined by commas (default all)")
		flags.StringVar(&options.Annotation, "annotation", "", "annotation with a Pod's addresses (default \""+install.DefaultAnnotation+"\")")
		flags.StringVar(&subnets, "subnets", "", "networks of the addresses, joined by commas, for plugins that want a prefix length")
		flags.DurationVar(&options.Timeout, "timeout", 0, "how long to wait for the API server when a Pod starts (default 10s)")
	}
	switch name {
	case "install":
		flags.BoolVar(&watch, "watch", false, "stay, renew the token, and follow changes of the node's network")
		flags.DurationVar(&interval, "interval", 10*time.Second, "how often -watch looks for changes")
	case "uninstall":
		flags.BoolVar(&wait, "wait", false, "stay when done, until told to end")
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
		return fmt.Errorf("%s takes no argument %q", name, flags.Arg(0))
	case watch && interval <= 0:
		return errors.New("-interval must be longer than 0")
	case watch:
		return options.Watch(ctx, interval, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	return once(ctx, name, options, wait)
}

func once(ctx context.Context, name string, options install.Options, wait bool) error {
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
	return errors.New("there is no command " + name + "\n" + usage)
}

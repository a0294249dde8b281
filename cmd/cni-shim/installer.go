package main

import (
	"cmp"
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

// commandDescriptions describe the commands of the installer.
var commandDescriptions = map[string]string{
	"install":   "Install or update cni-shim on this node.",
	"verify":    "Check that cni-shim is installed on this node and up to date, and exit with status 1 if it is not.",
	"uninstall": "Uninstall cni-shim from this node.",
}

// Defaults of flags.
const (
	defaultBinaryDir      = "/opt/cni/bin"
	defaultConfigDir      = "/etc/cni/net.d"
	defaultServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	defaultInterval       = 10 * time.Second
)

// installerFlags are the values of the command line flags.
type installerFlags struct {
	install.Options
	namespaces, subnets string
	watch, wait         bool
	interval            time.Duration
}

// runInstaller runs one of the commands install, verify and uninstall, or prints the usage.
func runInstaller(ctx context.Context, command string, args []string) error {
	switch command {
	case "-h", "-help", "--help", "help":
		fmt.Fprintln(os.Stdout, usage)
		return nil
	}
	if commandDescriptions[command] == "" {
		return fmt.Errorf("unknown command %q\n\n%s", command, usage)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of this program: %w", err)
	}
	options := installerFlags{Options: install.Options{Program: program}}
	flags := options.newFlagSet(command)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	options.applyDefaults()
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%s: unexpected argument %q", command, flags.Arg(0))
	case options.watch && options.interval <= 0:
		return errors.New("-interval must be greater than 0, for example 10s")
	case options.watch:
		return options.Watch(ctx, options.interval, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	return options.runOnce(ctx, command)
}

// newFlagSet returns the flags of the command. An empty value selects the default.
func (o *installerFlags) newFlagSet(command string) *flag.FlagSet {
	flags := flag.NewFlagSet("cni-shim "+command, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "%s\n\nUsage:\n  cni-shim %s [flags]\n\nFlags:\n", commandDescriptions[command], command)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.BinaryDir, "bin-dir", "", "`directory` of the CNI plugins (default: "+defaultBinaryDir+")")
	flags.StringVar(&o.ConfigDir, "conf-dir", "", "`directory` of the network configurations (default: "+defaultConfigDir+")")
	switch command {
	case "install", "verify":
		flags.StringVar(&o.Server, "server", "", "`URL` at which nodes reach the API server "+
			"(default: the API server of the Pod in which the command runs)")
		flags.StringVar(&o.ServiceAccount, "service-account", "",
			"`directory` with the files token and ca.crt of a service account (default: "+defaultServiceAccount+")")
		flags.StringVar(&o.TokenFor, "token-for", "",
			"request the node's token for the service account `namespace/name`, authenticating with the token in -service-account "+
				"(default: copy the token in -service-account to the node)")
		flags.StringVar(&o.namespaces, "namespaces", "", "comma-separated `namespaces` in which Pods may request addresses (default: all)")
		flags.StringVar(&o.Annotation, "annotation", "", "`key` of the Pod annotation that holds the requested addresses "+
			"(default: "+install.DefaultAnnotation+")")
		flags.StringVar(&o.subnets, "subnets", "", "comma-separated `subnets` of the requested addresses, "+
			"for plugins that require a prefix length, such as static")
		flags.DurationVar(&o.Timeout, "timeout", 0, "how long to wait for the API server when a Pod starts, "+
			"for example 5s (default: 10s)")
	}
	switch command {
	case "install":
		flags.BoolVar(&o.watch, "watch", false, "keep running, renew the token, "+
			"and update the shim when the node's network configuration changes")
		flags.DurationVar(&o.interval, "interval", defaultInterval, "with -watch: interval between checks for changes")
	case "uninstall":
		flags.BoolVar(&o.wait, "wait", false, "keep running after the files are removed, until terminated")
	}
	return flags
}

func (o *installerFlags) applyDefaults() {
	o.BinaryDir = cmp.Or(o.BinaryDir, defaultBinaryDir)
	o.ConfigDir = cmp.Or(o.ConfigDir, defaultConfigDir)
	o.Server = cmp.Or(o.Server, install.InClusterServer())
	o.ServiceAccount = cmp.Or(o.ServiceAccount, defaultServiceAccount)
	if o.subnets != "" {
		o.Subnets = strings.Split(o.subnets, ",")
	}
	if o.namespaces != "" {
		o.Namespaces = strings.Split(o.namespaces, ",")
	}
}

func (o *installerFlags) runOnce(ctx context.Context, command string) error {
	switch command {
	case "install":
		_, err := o.Install(ctx)
		return err
	case "verify":
		return o.Verify(ctx)
	}
	if err := o.Uninstall(); err != nil {
		return err
	}
	if o.wait {
		<-ctx.Done()
	}
	return nil
}

// Command cpi is a BOSH Cloud Provider Interface (CPI) for Kubernetes: it reads one JSON request from stdin and writes one JSON
// response to stdout. With -collect, it lists or deletes resources orphaned by interrupted calls. With -check, it runs preflight
// checks. With -push-node-image, it pushes the image of bosh-node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/collect"
	"bosh-kubernetes-cpi/cpi/preflight"
)

const usage = `Read one CPI request from stdin, and write the response to stdout. With -collect, list
orphaned resources instead, and with -check, run the preflight checks. With -push-node-image,
push the image of the CPI's program on nodes.

Usage:
  cpi -configPath path
  cpi -configPath path -collect -director UUID [flags]
  cpi -configPath path -check [flags]
  cpi -configPath path -push-node-image

Flags:
`

func main() {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	configPath := flag.String("configPath", "", "`path` of the CPI's configuration file, cpi.json")
	collecting := flag.Bool("collect", false, "list resources orphaned by interrupted calls, and exit")
	director := flag.String("director", "", "with -collect: `UUID` of the director, as printed by `bosh env`")
	confirm := flag.Bool("confirm", false, "with -collect: delete the listed resources, and repair the listed disks")
	minAge := flag.Duration("min-age", 0, "with -collect: minimum age before a resource counts as orphaned, "+
		"for example 30m (default: the longest configured timeout)")
	check := flag.Bool("check", false, "run preflight checks, print the results and remedies, and exit; "+
		"the exit status is 1 if a required check fails")
	deep := flag.Bool("deep", false, "with -check: also run the deep checks, which create test Pods and delete them within about a minute")
	asJSON := flag.Bool("json", false, "with -check: print the results as JSON")
	image := flag.String("image", "", "with -check: stemcell `image` for the Pods that the checks create "+
		"(default: the image of an existing VM)")
	pushing := flag.Bool("push-node-image", false, "push the image of bosh-node to the repository from which nodes pull it, print its "+
		"reference, and exit; without an account in kubernetes.stemcell.registry for this registry, credentials are those in Docker's "+
		"configuration")
	flag.Parse()
	switch {
	case flag.NArg() > 0: // flags after an argument would be ignored
		fmt.Fprintf(os.Stderr, "unexpected argument %q; write -flag=value\n", flag.Arg(0))
		os.Exit(2)
	case *minAge < 0:
		fmt.Fprintf(os.Stderr, "-min-age %s is negative; set a duration such as 2h\n", *minAge)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	passed := true
	switch {
	case *collecting:
		collector := collect.Collector{Director: *director, Confirm: *confirm, MinAge: *minAge, Out: os.Stdout}
		err = runCollect(ctx, *configPath, collector)
	case *pushing:
		err = pushNodeImage(ctx, *configPath)
	case *check:
		passed, err = runCheck(ctx, *configPath, *image, *deep, *asJSON)
	default:
		// Exiting is as safe as being killed: the director can retry a call that was interrupted at any point.
		onCallerExit(os.Getppid(), os.Stdout, func() { os.Exit(1) })
		server := cpi.Server{
			Config: sync.OnceValues(func() (cpi.Config, error) { return loadConfig(*configPath) }),
			Log:    os.Stderr,
		}
		// Fail only if the response cannot be written: the BOSH CLI ignores the response of a CPI with a nonzero exit status.
		err = server.Serve(ctx, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

// loadConfig loads the configuration at the path of the option -configPath.
func loadConfig(path string) (cpi.Config, error) {
	config, err := cpi.LoadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; set -configPath to its path", err)
	}
	return config, err
}

func runCollect(ctx context.Context, configPath string, collector collect.Collector) (err error) {
	if collector.Config, err = loadConfig(configPath); err != nil {
		return err
	}
	return collector.Run(ctx)
}

func pushNodeImage(ctx context.Context, configPath string) error {
	config, err := loadConfig(configPath)
	if err != nil {
		return err
	}
	reference, err := config.NodeImageStore(slog.New(slog.DiscardHandler)).Push(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, reference)
	return err
}

// runCheck writes the results of the checks, and reports whether all required checks pass.
func runCheck(ctx context.Context, configPath, image string, deep, asJSON bool) (passed bool, err error) {
	config, err := loadConfig(configPath)
	if err != nil {
		return false, err
	}
	client, err := preflight.NewClient(config)
	if err != nil {
		return false, err
	}
	results := preflight.Run(ctx, config, client, image)
	if deep {
		results = append(results, preflight.RunDeep(ctx, config, client, image, nil)...)
	}
	return preflight.Passed(results), preflight.Write(os.Stdout, results, asJSON)
}

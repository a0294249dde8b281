// Command cpi is a BOSH Cloud Provider Interface for Kubernetes: it reads one JSON request from stdin
// and writes one JSON response to stdout. With -collect it reports, or removes, what calls that were
// cut short have left in the cluster; with -check it reports whether the CPI can work there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/preflight"
)

func main() {
	path := flag.String("configPath", "", "path of the CPI's configuration, cpi.json")
	collect := flag.Bool("collect", false, "serve no request, but list what calls that were cut short have left in the cluster")
	director := flag.String("director", "", "with -collect: the UUID of the director whose left-overs these are")
	confirm := flag.Bool("confirm", false, "with -collect: remove what is listed")
	grace := flag.Duration("grace", 0, "with -collect: the age at which no call is at something any more (by default the longest timeout)")
	check := flag.Bool("check", false, "serve no request, but look whether the CPI can work in the cluster, and what to do where not")
	deep := flag.Bool("deep", false, "with -check: run Pods on the nodes too, and remove them; it takes up to a minute")
	asJSON := flag.Bool("json", false, "with -check: report as JSON")
	image := flag.String("image", "", "with -check: the image that Pods are tried with, a stemcell's")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *collect {
		if err := runCollect(ctx, *path, cpi.Collector{Director: *director, Confirm: *confirm, MinAge: *grace, Out: os.Stdout}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *check {
		os.Exit(runCheck(ctx, *path, *image, *deep, *asJSON))
	}
	// Each call can be repeated from any point at which it was cut short: it ends as if it was killed.
	whenCallerGoes(os.Getppid(), os.Stdout, func() { os.Exit(1) })
	server := cpi.Server{
		Config: sync.OnceValues(func() (cpi.Config, error) { return cpi.LoadConfig(*path) }),
		Log:    os.Stderr,
	}
	// Only a response that could not be written is a failure of the process: the CLI takes any other
	// status than 0 as one, and would not read the response.
	if err := server.Serve(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runCollect(ctx context.Context, path string, collector cpi.Collector) (err error) {
	if collector.Config, err = cpi.LoadConfig(path); err != nil {
		return err
	}
	return collector.Run(ctx)
}

// runCheck returns the exit status: 0 only when all that is required holds.
func runCheck(ctx context.Context, path, image string, deep, asJSON bool) int {
	config, err := cpi.LoadConfig(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	results, err := preflight.Run(ctx, config, image)
	if err == nil && deep {
		var found []preflight.Result
		found, err = preflight.RunDeep(ctx, config, image)
		results = append(results, found...)
	}
	if err == nil {
		err = preflight.Write(os.Stdout, results, asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !preflight.Passed(results) {
		return 1
	}
	return 0
}

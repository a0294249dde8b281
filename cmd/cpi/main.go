// Command cpi is a BOSH Cloud Provider Interface for Kubernetes: it reads one JSON request from stdin
// and writes one JSON response to stdout.
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
)

func main() {
	path := flag.String("configPath", "", "path of the CPI's configuration, cpi.json")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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

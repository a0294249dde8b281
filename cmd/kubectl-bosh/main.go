// Command kubectl-bosh is a kubectl plugin, `kubectl bosh`, for those who run BOSH on Kubernetes: a way in to machines
// for who has a kubeconfig and no route to Pods, and what BOSH has in the cluster, by BOSH's own names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // what kubeconfigs name beside programs: OIDC
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if status, ok := errors.AsType[exitStatus](err); ok {
			os.Exit(int(status))
		}
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// exitStatus is the status of a command that was run for the caller, and has said itself what was wrong.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

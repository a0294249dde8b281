// Command kubectl-bosh is a kubectl plugin, `kubectl bosh`, for operators of BOSH on Kubernetes. It creates and deletes directors, runs
// preflight checks, and shows and accesses BOSH VMs with only a kubeconfig.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // OIDC authentication, which some kubeconfigs use
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), terminationSignals()...)
	defer stop()
	conn := &connection{}
	if err := newRoot(conn).ExecuteContext(ctx); err != nil {
		if status, ok := errors.AsType[exitStatus](err); ok {
			os.Exit(int(status))
		}
		fmt.Fprintln(os.Stderr, "error:", linkDocs(conn.explainUnreachable(err).Error()))
		os.Exit(1)
	}
}

// exitStatus is the exit status of a command that already reported its error.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

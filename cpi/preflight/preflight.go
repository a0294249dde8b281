package preflight

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

const (
	// runTimeout limits all checks together, which take a few seconds unless the API server is slow.
	runTimeout = time.Minute
	// retryTimeout limits how long a request is retried while the API server is unreachable.
	retryTimeout = 2 * time.Second
	// parallelism is how many checks run, and how many permissions are checked, at the same time.
	parallelism = 6
)

// NewClient returns a client for the cluster of the configuration.
func NewClient(config cpi.Config) (*kube.Client, error) {
	return kube.New(config.Cluster, manifest.ManagedBy, retryTimeout)
}

// Run runs the checks in the cluster and the namespace of the client, and returns the results in the order of Checks. image is the image of
// the Pods in dry runs, by default the image of an existing VM, or one in the configured registry.
func Run(ctx context.Context, config cpi.Config, client *kube.Client, image string) []Result {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	s := newClusterState(config, client, image)
	checks := Checks()
	results := make([]Result, len(checks))
	first := checks[0].run(ctx, s)
	results[0] = first
	forEachParallel(len(checks)-1, func(i int) {
		check := checks[i+1]
		if first.Verdict == Fails && check.Name != checkCredentials {
			results[i+1] = check.result(undetermined(skipped, "see "+checkAPI))
			return
		}
		results[i+1] = check.run(ctx, s)
	})
	return results
}

// skipped is the detail of a check that did not run, because the API server does not respond.
const skipped = "skipped"

func (c Check) run(ctx context.Context, s *clusterState) Result { return c.result(c.inspect(ctx, s)) }

func (c Check) result(found finding) Result {
	return Result{Check: c.Name, Kind: c.Kind, Verdict: found.verdict, Detail: found.detail, Remedy: found.remedy}
}

// forEachParallel calls run for 0 to n-1, with up to parallelism calls at the same time.
func forEachParallel(n int, run func(i int)) {
	var group errgroup.Group
	group.SetLimit(parallelism)
	for i := range n {
		group.Go(func() error {
			run(i)
			return nil
		})
	}
	_ = group.Wait() // no call returns an error
}

// errorFinding returns the finding for an error of a request. permissionsFile is the file that grants the permissions for the request.
func errorFinding(err error, permissionsFile string) finding {
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrDenied):
		return undetermined("access denied: "+err.Error(), "to enable this check, apply "+permissionsFile)
	case errors.Is(err, kube.ErrTimeout), errors.Is(err, kube.ErrUnreachable):
		return undetermined(err.Error(), "retry the check; if it fails again, check the load of the API server")
	}
	return fail(err.Error(), "correct the cause in the message")
}

// Files that grant the permissions for calls and checks.
const (
	callPermissionsFile  = "manifests/rbac.yaml"
	checkPermissionsFile = "manifests/rbac-check.yaml"
)

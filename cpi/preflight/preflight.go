package preflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/kube"
)

const (
	// runTimeout is how long all checks may take together.
	runTimeout = 9 * time.Second
	// retryTimeout is how long a request is repeated while the API server cannot be reached.
	retryTimeout = 2 * time.Second
	// parallelism is how many checks are looked at, and how many rights are asked for, at the same time.
	parallelism = 6
)

// Result is a row of the report.
type Result struct {
	Check   string  `json:"check"`
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"result"`
	Detail  string  `json:"detail"`
	Advice  string  `json:"advice"`
}

// Run looks at the cluster of the configuration and returns what it finds, in the checks' order. image is the one that
// Pods are tried with; one of the cluster's own machines', or of the configured registry, when empty.
func Run(ctx context.Context, config cpi.Config, image string) ([]Result, error) {
	client, err := kube.New(config.Kubernetes, retryTimeout)
	if err != nil {
		return nil, err
	}
	return RunWithClient(ctx, config, client, image), nil
}

// RunWithClient is Run for the cluster and the namespace of the client, whatever cluster the configuration names.
func RunWithClient(ctx context.Context, config cpi.Config, client *kube.Client, image string) []Result {
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
			results[i+1] = check.result(undetermined("not looked at", "see "+checkAPI))
			return
		}
		results[i+1] = check.run(ctx, s)
	})
	return results
}

// Passed reports that nothing that is required fails.
func Passed(results []Result) bool {
	for _, result := range results {
		if result.Kind == Required && result.Verdict == Fails {
			return false
		}
	}
	return true
}

func (c Check) run(ctx context.Context, s *clusterState) Result { return c.result(c.inspect(ctx, s)) }

func (c Check) result(found finding) Result {
	return Result{Check: c.Name, Kind: c.Kind, Verdict: found.verdict, Detail: found.detail, Advice: found.advice}
}

// forEachParallel calls look for the numbers below n, some of them at the same time.
func forEachParallel(n int, run func(i int)) {
	var all sync.WaitGroup
	free := make(chan struct{}, parallelism)
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			run(i)
		})
	}
	all.Wait()
}

// errorFinding is what an error of the API server's means for a check that asks for what rights names a file to give.
func errorFinding(err error, rightsFile string) finding {
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrRefused):
		return undetermined("not allowed to look: "+err.Error(), "to have it looked at, apply "+rightsFile)
	case errors.Is(err, kube.ErrTimeout), errors.Is(err, kube.ErrUnreachable):
		return fail(fmt.Sprintf("no answer in time: %v", err), "repeat the check; if it stays so, look at the load of the API server")
	}
	return fail(err.Error(), "look at what the message names")
}

// Files with the rights that checks need.
const (
	callRightsFile     = "docs/rbac.yaml"
	networkRightsFile  = "docs/rbac-networks.yaml"
	prefetchRightsFile = "docs/rbac-prefetch.yaml"
	checkRightsFile    = "docs/rbac-check.yaml"
)

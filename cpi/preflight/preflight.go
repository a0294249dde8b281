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
	// limit is how long all checks may take together.
	limit = 9 * time.Second
	// patience is how long a request is repeated while the API server cannot be reached.
	patience = 2 * time.Second
	// abreast is how many checks are looked at, and how many rights are asked for, at the same time.
	abreast = 6
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
	client, err := kube.New(config.Kubernetes, patience)
	if err != nil {
		return nil, err
	}
	return Look(ctx, config, client, image), nil
}

// Look is Run for the cluster and the namespace of the client, whatever cluster the configuration names.
func Look(ctx context.Context, config cpi.Config, client *kube.Client, image string) []Result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s := newSubject(config, client, image)
	checks := Checks()
	results := make([]Result, len(checks))
	first := checks[0].run(ctx, s)
	results[0] = first
	each(len(checks)-1, func(i int) {
		check := checks[i+1]
		if first.Verdict == Fails && check.Name != checkCredentials {
			results[i+1] = check.result(unknown("not looked at", "see "+checkAPI))
			return
		}
		results[i+1] = check.run(ctx, s)
	})
	return results
}

// Holds reports that nothing that is required fails.
func Holds(results []Result) bool {
	for _, result := range results {
		if result.Kind == Required && result.Verdict == Fails {
			return false
		}
	}
	return true
}

func (c Check) run(ctx context.Context, s *subject) Result { return c.result(c.look(ctx, s)) }

func (c Check) result(found finding) Result {
	return Result{Check: c.Name, Kind: c.Kind, Verdict: found.verdict, Detail: found.detail, Advice: found.advice}
}

// each calls look for the numbers below n, some of them at the same time.
func each(n int, look func(i int)) {
	var all sync.WaitGroup
	free := make(chan struct{}, abreast)
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			look(i)
		})
	}
	all.Wait()
}

// failed is what an error of the API server's means for a check that asks for what rights names a file to give.
func failed(err error, rights string) finding {
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fails(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrRefused):
		return unknown("not allowed to look: "+err.Error(), "to have it looked at, apply "+rights)
	case errors.Is(err, kube.ErrTimeout), errors.Is(err, kube.ErrUnreachable):
		return fails(fmt.Sprintf("no answer in time: %v", err), "repeat the check; if it stays so, look at the load of the API server")
	}
	return fails(err.Error(), "look at what the message names")
}

// Files with the rights that checks need.
const (
	rightsOfCalls    = "docs/rbac.yaml"
	rightsOfNetworks = "docs/rbac-networks.yaml"
	rightsOfPrefetch = "docs/rbac-prefetch.yaml"
	rightsOfChecks   = "docs/rbac-check.yaml"
)

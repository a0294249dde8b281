package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

const (
	// oldest and newest are the minor versions of Kubernetes 1 that the CPI is made for.
	oldest, newest = 33, 36
	// soon is when credentials that end are told of.
	soon = 30 * 24 * time.Hour
	// skew is how far clocks may be apart.
	skew = 10 * time.Second
)

func lookAtAPI(ctx context.Context, s *subject) finding {
	server, err := s.server(ctx)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fails(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrNoCredentials):
		return fails(err.Error(), "correct the user's entry in kubernetes.kubeconfig, see docs/credentials.md")
	case err != nil:
		return fails(call.AsBOSH(err).Error(),
			"check the server's URL in kubernetes.kubeconfig, its certificate authority, and the network between; see "+checkCredentials)
	}
	return ok(server.URL + " answers, namespace " + s.client.Namespace)
}

func lookAtVersion(ctx context.Context, s *subject) finding {
	server, err := s.server(ctx)
	switch {
	case err != nil:
		return failed(err, rightsOfCalls)
	case server.Minor == 0:
		return unknown(server.Version+" is a version of an unknown form", "")
	case server.Minor < oldest:
		return fails(server.Version, fmt.Sprintf("upgrade the cluster: the CPI is made for Kubernetes 1.%d to 1.%d", oldest, newest))
	case server.Minor > newest:
		return warns(server.Version, fmt.Sprintf("the CPI is made for Kubernetes 1.%d to 1.%d: look for a newer release of it", oldest, newest))
	}
	return ok(server.Version)
}

// lookAtCredentials asks something that only those who are known may ask, too.
func lookAtCredentials(ctx context.Context, s *subject) finding {
	its, err := s.client.Credentials()
	if err != nil {
		return fails(err.Error(), "correct the user's entry in kubernetes.kubeconfig")
	}
	const renew = "make new credentials and put them into kubernetes.kubeconfig, see docs/install.md"
	left := time.Until(its.Ends)
	if its.Ended(time.Now()) {
		return fails(fmt.Sprintf("the %s ended on %s", its.What, its.Ends.UTC().Format(time.RFC3339)), renew)
	}
	reviewer, err := s.client.Reviewer()
	if err == nil {
		_, err = reviewer.May(ctx, kube.Right{Resource: "pods", Verb: "get"})
	}
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fails("the API server does not accept the "+its.What, renew)
	case err != nil:
		return failed(err, rightsOfCalls)
	case its.Ends.IsZero():
		return ok(its.What)
	}
	said := fmt.Sprintf("the %s ends in %d days, on %s", its.What, int(left/(24*time.Hour)), its.Ends.UTC().Format(time.RFC3339))
	if left < soon && !its.Renewed {
		return warns(said, "before that, "+renew)
	}
	return ok(said)
}

func lookAtClock(ctx context.Context, s *subject) finding {
	server, err := s.server(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	said := "the API server's clock is this machine's"
	switch {
	case server.Ahead > 0:
		said = fmt.Sprintf("the API server's clock is %s ahead of this machine's", server.Ahead)
	case server.Ahead < 0:
		said = fmt.Sprintf("the API server's clock is %s behind this machine's", -server.Ahead)
	}
	if server.Ahead.Abs() > skew {
		return fails(said, "set both by time servers: certificates, tokens and the ages of left-overs depend on it")
	}
	return ok(said)
}

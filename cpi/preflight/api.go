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
	// oldestMinor and newest are the minor versions of Kubernetes 1 that the CPI is made for.
	oldestMinor, newestMinor = 33, 36
	// expiryWarningPeriod is when credentials that end are told of.
	expiryWarningPeriod = 30 * 24 * time.Hour
	// maxClockSkew is how far clocks may be apart.
	maxClockSkew = 10 * time.Second
)

func inspectAPI(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrNoCredentials):
		return fail(err.Error(), "correct the user's entry in kubernetes.kubeconfig, see docs/credentials.md")
	case err != nil:
		return fail(call.AsBOSH(err).Error(),
			"check the server's URL in kubernetes.kubeconfig, its certificate authority, and the network between; see "+checkCredentials)
	}
	return pass(server.URL + " answers, namespace " + s.client.Namespace)
}

func inspectVersion(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	switch {
	case err != nil:
		return errorFinding(err, callRightsFile)
	case server.Minor == 0:
		return undetermined(server.Version+" is a version of an unknown form", "")
	case server.Minor < oldestMinor:
		return fail(server.Version, fmt.Sprintf("upgrade the cluster: the CPI is made for Kubernetes 1.%d to 1.%d", oldestMinor, newestMinor))
	case server.Minor > newestMinor:
		return warn(
			server.Version,
			fmt.Sprintf("the CPI is made for Kubernetes 1.%d to 1.%d: look for a newer release of it", oldestMinor, newestMinor),
		)
	}
	return pass(server.Version)
}

// inspectCredentials asks something that only those who are known may ask, too.
func inspectCredentials(ctx context.Context, s *clusterState) finding {
	credentials, err := s.client.Credentials()
	if err != nil {
		return fail(err.Error(), "correct the user's entry in kubernetes.kubeconfig")
	}
	const renew = "make new credentials and put them into kubernetes.kubeconfig, see docs/install.md"
	remaining := time.Until(credentials.ExpiresAt)
	if credentials.Expired(time.Now()) {
		return fail(fmt.Sprintf("the %s ended on %s", credentials.Kind, credentials.ExpiresAt.UTC().Format(time.RFC3339)), renew)
	}
	reviewer, err := s.client.Reviewer()
	if err == nil {
		_, err = reviewer.IsAllowed(ctx, kube.Right{Resource: "pods", Verb: "get"})
	}
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail("the API server does not accept the "+credentials.Kind, renew)
	case err != nil:
		return errorFinding(err, callRightsFile)
	case credentials.ExpiresAt.IsZero():
		return pass(credentials.Kind)
	}
	message := fmt.Sprintf(
		"the %s ends in %d days, on %s",
		credentials.Kind,
		int(remaining/(24*time.Hour)),
		credentials.ExpiresAt.UTC().Format(time.RFC3339),
	)
	if remaining < expiryWarningPeriod && !credentials.AutoRenewed {
		return warn(message, "before that, "+renew)
	}
	return pass(message)
}

func inspectClock(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	message := "the API server's clock is this machine's"
	switch {
	case server.ClockSkew > 0:
		message = fmt.Sprintf("the API server's clock is %s ahead of this machine's", server.ClockSkew)
	case server.ClockSkew < 0:
		message = fmt.Sprintf("the API server's clock is %s behind this machine's", -server.ClockSkew)
	}
	if server.ClockSkew.Abs() > maxClockSkew {
		return fail(message, "set both by time servers: certificates, tokens and the ages of left-overs depend on it")
	}
	return pass(message)
}

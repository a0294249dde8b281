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
	// oldestMinor and newestMinor are the oldest and newest supported minor versions of Kubernetes 1.
	oldestMinor, newestMinor = 35, 37
	// expiryWarningPeriod is how long before the expiration of credentials the check warns.
	expiryWarningPeriod = 30 * 24 * time.Hour
	// maxClockSkew is the accepted difference between the clocks of the API server and this host.
	maxClockSkew = 10 * time.Second

	checkServer = "check the server's URL and CA certificate in the kubeconfig, and the network"
	correctUser = "correct the user's entry in the kubeconfig, see docs/guides/credentials.md"
)

func inspectAPI(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail(err.Error(), "see "+checkCredentials)
	case errors.Is(err, kube.ErrNoCredentials):
		return fail(err.Error(), correctUser)
	case err != nil:
		return fail(call.ClusterErrorMessage(err), checkServer)
	}
	return pass(server.URL + " responds, namespace " + s.client.Namespace)
}

func inspectVersion(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	switch {
	case err != nil:
		return errorFinding(err, callPermissionsFile)
	case server.Minor == 0:
		return undetermined("cannot parse version "+server.Version, "")
	case server.Minor < oldestMinor:
		return fail(server.Version, fmt.Sprintf("upgrade the cluster; the CPI supports Kubernetes 1.%d to 1.%d", oldestMinor, newestMinor))
	case server.Minor > newestMinor:
		return warn(server.Version,
			fmt.Sprintf("the CPI supports Kubernetes 1.%d to 1.%d; check for a newer release of the CPI", oldestMinor, newestMinor))
	}
	return pass(server.Version)
}

// inspectCredentials checks the expiration of the credentials, and sends a request that requires authentication.
func inspectCredentials(ctx context.Context, s *clusterState) finding {
	credentials, err := s.client.Credentials()
	if err != nil {
		return fail(err.Error(), correctUser)
	}
	const renew = "renew the credentials of the kubeconfig, see docs/guides/credentials.md"
	remaining := time.Until(credentials.ExpiresAt)
	if credentials.Expired(time.Now()) {
		return fail(fmt.Sprintf("the %s expired on %s", credentials.Kind, credentials.ExpiresAt.UTC().Format(time.RFC3339)), renew)
	}
	_, err = s.client.Reviewer().IsAllowed(ctx, kube.Permission{Resource: "pods", Verb: "get"})
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fail("the API server rejected the "+credentials.Kind, renew)
	case errors.Is(err, kube.ErrUnreachable), errors.Is(err, kube.ErrNotServed):
		return undetermined(skipped, "see "+checkAPI)
	case err != nil:
		return errorFinding(err, callPermissionsFile)
	case credentials.ExpiresAt.IsZero():
		return pass(credentials.Kind)
	}
	message := fmt.Sprintf("the %s expires in %d days, on %s",
		credentials.Kind, int(remaining/(24*time.Hour)), credentials.ExpiresAt.UTC().Format(time.RFC3339))
	if remaining < expiryWarningPeriod && !credentials.AutoRenewed {
		return warn(message, "before that, "+renew)
	}
	return pass(message)
}

func inspectClock(ctx context.Context, s *clusterState) finding {
	server, err := s.server(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	message := "the clocks of the API server and this host agree"
	switch {
	case server.ClockSkew > 0:
		message = fmt.Sprintf("the API server's clock is %s ahead of this host's", server.ClockSkew)
	case server.ClockSkew < 0:
		message = fmt.Sprintf("the API server's clock is %s behind this host's", -server.ClockSkew)
	}
	if server.ClockSkew.Abs() > maxClockSkew {
		return fail(message, "synchronize both with time servers; certificates and tokens depend on the time")
	}
	return pass(message)
}

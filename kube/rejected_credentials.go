package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// hasAutoRenewal reports whether the kubelet or a credential plugin renews the credentials while a client uses them.
func hasAutoRenewal(config *rest.Config) bool {
	return config.BearerTokenFile != "" || config.ExecProvider != nil
}

// rereadRejectedToken makes the client reread its token file after the API server rejects the token. Without it, client-go caches
// a rejected token for almost a minute.
func rereadRejectedToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(config.BearerTokenFile)))
	// A token takes precedence over a credential plugin, as in client-go.
	config.BearerToken, config.BearerTokenFile, config.ExecProvider = "", "", nil
}

// isCredentialPluginError reports whether the kubeconfig's credential plugin failed. The errors of client-go's
// plugin/pkg/client/auth/exec have no type.
func isCredentialPluginError(err error) bool {
	urlErr, ok := errors.AsType[*url.Error](err)
	return ok && strings.HasPrefix(urlErr.Err.Error(), "getting credentials: ")
}

// isTokenFileError reports whether client-go cannot read the token file, or the file is empty. Its errors have no type
// (transport/token_source.go).
func isTokenFileError(err error) bool {
	urlErr, ok := errors.AsType[*url.Error](err)
	if !ok {
		return false
	}
	text := urlErr.Err.Error()
	return strings.HasPrefix(text, "read empty token from file") || strings.HasPrefix(text, "failed to read token file")
}

// isAnonymousForbidden reports whether the API server forbids a request because it had no credentials that the server knows.
func isAnonymousForbidden(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "system:anonymous"`)
}

// isCredentialPluginNotFound reports whether the credential plugin is not installed on this host.
func isCredentialPluginNotFound(err error) bool {
	_, message, found := strings.Cut(err.Error(), "getting credentials: exec: executable ")
	return found && isCredentialPluginError(err) && strings.Contains(message, " not found")
}

// isClientCertRejected reports whether the peer aborted the TLS handshake because of the client certificate. Load balancers do
// that; the API server responds with 401. crypto/tls has no type for an alert that it receives.
func isClientCertRejected(err error) bool {
	netErr, ok := errors.AsType[*net.OpError](err)
	return ok && netErr.Op == "remote error" && strings.Contains(netErr.Err.Error(), "certificate")
}

// translate is like the function translate, but also explains credential errors.
func (conn connection) translate(action string, err error) error {
	return explainCredentialError(conn.config, translate(action, err))
}

// explainCredentialError adds the kind of the credentials and their expiry to a credential error. It returns other errors
// unchanged, without reading the credentials.
func explainCredentialError(config *rest.Config, err error) error {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	switch {
	case errors.Is(err, ErrNoCredentials) && config.ExecProvider != nil && isCredentialPluginNotFound(failed.Err):
		// without client-go's text, which has several lines of general advice
		failed.Err = fmt.Errorf("credential plugin %s of the kubeconfig is not installed on this host; install it, "+
			"or use a kubeconfig with a token", config.ExecProvider.Command)
	case errors.Is(err, ErrNoCredentials) && config.ExecProvider != nil:
		failed.Err = fmt.Errorf("credential plugin %s of the kubeconfig returned no credentials; its output is in the CPI log: %w",
			config.ExecProvider.Command, failed.Err)
	case errors.Is(err, ErrUnauthorized):
		failed.Err = fmt.Errorf("%s: %w", rejectedCredentialsMessage(config), failed.Err)
	}
	return failed
}

func rejectedCredentialsMessage(config *rest.Config) string {
	credentials, err := credentialsOf(config)
	switch {
	case credentials.Kind == noCredentials:
		return "the user of the kubeconfig has no credentials"
	case err != nil:
		return "cannot read the " + cmp.Or(credentials.Kind, "credentials") + ": " + err.Error()
	case credentials.Expired(time.Now()):
		return "the " + credentials.Kind + " expired on " + credentials.ExpiresAt.UTC().Format(time.RFC3339)
	case !credentials.ExpiresAt.IsZero():
		return "the API server rejected the " + credentials.Kind + ", which does not expire until " +
			credentials.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if credentials.Kind == usernameAndPassword {
		return "Kubernetes does not support a username and a password; use a token or a client certificate"
	}
	return "the API server rejected the " + credentials.Kind
}

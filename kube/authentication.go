package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// hasAutoRenewal reports whether the kubelet or a credential plugin renews the credentials while a client uses them.
func hasAutoRenewal(config *rest.Config) bool {
	return config.BearerTokenFile != "" || config.ExecProvider != nil
}

// rereadRejectedToken makes the client read its token file again after the API server has rejected the token. client-go alone
// caches a token for most of a minute, whatever the API server answers.
func rereadRejectedToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(config.BearerTokenFile)))
	// A token takes precedence over a credential plugin, as in client-go.
	config.BearerToken, config.BearerTokenFile, config.ExecProvider = "", "", nil
}

// isCredentialPluginError reports whether the kubeconfig's credential plugin has failed. Its errors come from client-go's
// plugin/pkg/client/auth/exec, and have no type.
func isCredentialPluginError(err error) bool {
	urlErr, ok := errors.AsType[*url.Error](err)
	return ok && strings.HasPrefix(urlErr.Err.Error(), "getting credentials: ")
}

// isMissingCredentialPlugin reports whether the credential plugin is not installed on this host.
func isMissingCredentialPlugin(err error) bool {
	_, message, found := strings.Cut(err.Error(), "getting credentials: exec: executable ")
	return found && isCredentialPluginError(err) && strings.Contains(message, " not found")
}

// isClientCertRejected reports whether the other side has aborted the TLS handshake because of the client certificate, as load
// balancers do. The API server itself answers 401. crypto/tls has no type for an alert of the other side.
func isClientCertRejected(err error) bool {
	netErr, ok := errors.AsType[*net.OpError](err)
	return ok && netErr.Op == "remote error" && strings.Contains(netErr.Err.Error(), "certificate")
}

// translate is the package's translate, and adds to an error about credentials what is wrong with them.
func (via connection) translate(action string, err error) error {
	return explainCredentialError(via.config, translate(action, err))
}

// explainCredentialError adds to an error about credentials which credentials they are, and when they expired. It reads and
// parses the credentials only for such an error.
func explainCredentialError(config *rest.Config, err error) error {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	switch {
	case errors.Is(err, ErrNoCredentials) && config.ExecProvider != nil:
		failed.Err = fmt.Errorf("%s: %w", credentialPluginMessage(config.ExecProvider.Command, failed.Err), failed.Err)
	case errors.Is(err, ErrUnauthorized):
		failed.Err = fmt.Errorf("%s: %w", rejectedCredentialsMessage(config), failed.Err)
	}
	return failed
}

func credentialPluginMessage(command string, err error) string {
	if isMissingCredentialPlugin(err) {
		return fmt.Sprintf("credential plugin %s of the kubeconfig is not installed on this host; "+
			"on a director VM use the Pod's service account or a token", command)
	}
	return "credential plugin " + command + " returned no credentials"
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
		return "the API server rejected the " + credentials.Kind + ", which expires only on " + credentials.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return "the API server rejected the " + credentials.Kind
}

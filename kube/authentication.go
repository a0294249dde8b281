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

// hasAutoRenewal reports whether something else renews the credentials while a client uses them.
func hasAutoRenewal(config *rest.Config) bool {
	return config.BearerTokenFile != "" || config.ExecProvider != nil
}

// rereadRejectedToken has a file's token be read again once the API server does not accept it any more. client-go itself keeps it
// for most of a minute, whatever the answers are.
func rereadRejectedToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(config.BearerTokenFile)))
	// A token goes before a program that could give another.
	config.BearerToken, config.BearerTokenFile, config.ExecProvider = "", "", nil
}

// isCredentialPluginError reports that the program that is to give credentials gave none: client-go's plugin/pkg/client/auth/exec, whose
// errors have no type.
func isCredentialPluginError(err error) bool {
	urlErr, ok := errors.AsType[*url.Error](err)
	return ok && strings.HasPrefix(urlErr.Err.Error(), "getting credentials: ")
}

// isMissingCredentialPlugin reports that this machine does not have that program.
func isMissingCredentialPlugin(err error) bool {
	_, message, found := strings.Cut(err.Error(), "getting credentials: exec: executable ")
	return found && isCredentialPluginError(err) && strings.Contains(message, " not found")
}

// isClientCertRejected reports that what answers has ended the TLS handshake for the sake of the client's certificate, as load
// balancers do. The API server itself answers 401. crypto/tls has no type for what the other side says.
func isClientCertRejected(err error) bool {
	netErr, ok := errors.AsType[*net.OpError](err)
	return ok && netErr.Op == "remote error" && strings.Contains(netErr.Err.Error(), "certificate")
}

// translate is the package's, and explains what is wrong with credentials.
func (via connection) translate(action string, err error) error {
	return explainCredentialError(via.config, translate(action, err))
}

// explainCredentialError says of an error for the sake of credentials which they are, and when they ended. What that costs, only such an
// error costs.
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
		return fmt.Sprintf("the kubeconfig has the program %s give the credentials, and this machine does not have it; "+
			"a director's VM works by the service account of its Pod, or by a token", command)
	}
	return "the program " + command + ", which is to give the credentials, gave none"
}

func rejectedCredentialsMessage(config *rest.Config) string {
	credentials, err := credentialsOf(config)
	switch {
	case credentials.Kind == noCredentials:
		return "the kubeconfig's user has no credentials"
	case err != nil:
		return cmp.Or(credentials.Kind, "credentials") + " cannot be read: " + err.Error()
	case credentials.Expired(time.Now()):
		return "the " + credentials.Kind + " ended on " + credentials.ExpiresAt.UTC().Format(time.RFC3339)
	case !credentials.ExpiresAt.IsZero():
		return "the API server does not accept the " + credentials.Kind + ", though it ends only on " + credentials.ExpiresAt.UTC().Format(
			time.RFC3339,
		)
	}
	return "the API server does not accept the " + credentials.Kind
}

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

// renews reports whether something else renews the credentials while a client uses them.
func renews(config *rest.Config) bool {
	return config.BearerTokenFile != "" || config.ExecProvider != nil
}

// readTokenAnew has a file's token be read again once the API server does not accept it any more. client-go itself keeps it
// for most of a minute, whatever the answers are.
func readTokenAnew(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(config.BearerTokenFile)))
	// A token goes before a program that could give another.
	config.BearerToken, config.BearerTokenFile, config.ExecProvider = "", "", nil
}

// isOfProgram reports that the program that is to give credentials gave none: client-go's plugin/pkg/client/auth/exec, whose
// errors have no type.
func isOfProgram(err error) bool {
	lost, ok := errors.AsType[*url.Error](err)
	return ok && strings.HasPrefix(lost.Err.Error(), "getting credentials: ")
}

// isMissingProgram reports that this machine does not have that program.
func isMissingProgram(err error) bool {
	_, said, found := strings.Cut(err.Error(), "getting credentials: exec: executable ")
	return found && isOfProgram(err) && strings.Contains(said, " not found")
}

// refusesCertificate reports that what answers has ended the TLS handshake for the sake of the client's certificate, as load
// balancers do. The API server itself answers 401. crypto/tls has no type for what the other side says.
func refusesCertificate(err error) bool {
	said, ok := errors.AsType[*net.OpError](err)
	return ok && said.Op == "remote error" && strings.Contains(said.Err.Error(), "certificate")
}

// translate is the package's, and explains what is wrong with credentials.
func (via connection) translate(action string, err error) error {
	return explained(via.config, translate(action, err))
}

// explained says of an error for the sake of credentials which they are, and when they ended. What that costs, only such an
// error costs.
func explained(config *rest.Config, err error) error {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	switch {
	case errors.Is(err, ErrNoCredentials) && config.ExecProvider != nil:
		failed.Err = fmt.Errorf("%s: %w", ofProgram(config.ExecProvider.Command, failed.Err), failed.Err)
	case errors.Is(err, ErrUnauthorized):
		failed.Err = fmt.Errorf("%s: %w", refusedCredentials(config), failed.Err)
	}
	return failed
}

func ofProgram(command string, err error) string {
	if isMissingProgram(err) {
		return fmt.Sprintf("the kubeconfig has the program %s give the credentials, and this machine does not have it; "+
			"a director's VM works by the service account of its Pod, or by a token", command)
	}
	return "the program " + command + ", which is to give the credentials, gave none"
}

func refusedCredentials(config *rest.Config) string {
	its, err := credentialsOf(config)
	switch {
	case its.What == noCredentials:
		return "the kubeconfig's user has no credentials"
	case err != nil:
		return cmp.Or(its.What, "credentials") + " cannot be read: " + err.Error()
	case its.Ended(time.Now()):
		return "the " + its.What + " ended on " + its.Ends.UTC().Format(time.RFC3339)
	case !its.Ends.IsZero():
		return "the API server does not accept the " + its.What + ", though it ends only on " + its.Ends.UTC().Format(time.RFC3339)
	}
	return "the API server does not accept the " + its.What
}

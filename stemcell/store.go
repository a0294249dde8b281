package stemcell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Store is the registries that the operator configured, as a place for stemcells.
type Store struct {
	Options
	Log *slog.Logger
	// Backoff spaces the tries of a request that may succeed when repeated; one and three seconds by
	// default.
	Backoff remote.Backoff
}

// readOptions are the settings to ask for an image. The registry's own are for no other registry.
func (s Store) readOptions(ctx context.Context, reference name.Reference) []remote.Option {
	registry := reference.Context().RegistryStr()
	for _, own := range []string{s.Registry.Repository, s.Registry.PullRepository} {
		if own != "" && registryHost(own) == registry {
			return s.writeOptions(ctx)
		}
	}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithRetryBackoff(remote.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 2}),
	}
}

// writeOptions are the settings for the configured registry.
func (s Store) writeOptions(ctx context.Context) []remote.Option {
	options := []remote.Option{
		remote.WithContext(ctx), s.Registry.authentication(),
		remote.WithTransport(s.Registry.transport()), remote.WithUserAgent("bosh-kubernetes-cpi"),
		remote.WithRetryPredicate(func(err error) bool { return ctx.Err() == nil && isTransient(err) }),
	}
	if s.Backoff.Steps > 0 {
		options = append(options, remote.WithRetryBackoff(s.Backoff))
	}
	return options
}

// isTransient reports whether the same request may well succeed a moment later.
func isTransient(err error) bool {
	if errors.Is(err, ErrInvalid) {
		return false
	}
	var temporary interface{ Temporary() bool }
	return isConnectionLost(err) || errors.As(err, &temporary) && temporary.Temporary()
}

func (r Registry) authentication() remote.Option { return remote.WithAuthFromKeychain(r.keychain()) }

// keychain has the configured credentials; without any, those of this machine.
func (r Registry) keychain() authn.Keychain {
	switch {
	case r.Token != "":
		return staticKeychain{authn.FromConfig(authn.AuthConfig{RegistryToken: string(r.Token)})}
	case r.Username != "":
		return staticKeychain{authn.FromConfig(authn.AuthConfig{Username: r.Username, Password: string(r.Password)})}
	}
	return authn.DefaultKeychain
}

// staticKeychain is a keychain with one key.
type staticKeychain struct{ authn.Authenticator }

// Resolve returns the key.
func (c staticKeychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return c.Authenticator, nil
}

// transport checks the registry's certificate against the system's authorities and the configured
// ones. go-containerregistry goes on with plain HTTP on its own for private addresses, which would
// give the credentials away; so that is refused here unless it is allowed.
func (r Registry) transport() http.RoundTripper {
	base := http.DefaultTransport.(*http.Transport).Clone()
	if r.CA != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(r.CA))
		base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if r.Insecure {
		return base
	}
	return tlsOnly{base}
}

type tlsOnly struct{ http.RoundTripper }

func (t tlsOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%s: %w", request.URL.Host, errPlainHTTP)
	}
	return t.RoundTripper.RoundTrip(request)
}

// repository is where heavy stemcells are pushed.
func (r Registry) repository() (name.Repository, error) {
	options := []name.Option{}
	if r.Insecure {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(r.Repository, options...)
	if err != nil {
		return repository, fmt.Errorf("stemcell.registry.repository: %w", err)
	}
	return repository, nil
}

package stemcell

import (
	"cmp"
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

// Store provides access to the stemcell images in the configured registries.
type Store struct {
	Options
	Log *slog.Logger
	// Backoff is the delay between attempts after transient errors. The default is one second, and then three seconds.
	Backoff remote.Backoff
}

// parse parses the reference of an image. With Insecure, requests to the configured registry, or without one to any registry, may use plain
// HTTP.
func (s Store) parse(reference string) (name.Reference, error) {
	parsed, err := name.ParseReference(reference)
	if err != nil || !s.Registry.Insecure {
		return parsed, err
	}
	for _, configured := range []string{cmp.Or(s.Registry.Repository, reference), s.Registry.PullRepository} {
		if configured != "" && registryHost(configured) == parsed.Context().RegistryStr() {
			return name.ParseReference(reference, name.Insecure)
		}
	}
	return parsed, nil
}

// readOptions returns the options for a lookup of the image. The configured credentials and CA apply only to the configured registry.
func (s Store) readOptions(ctx context.Context, reference name.Reference) []remote.Option {
	registry := reference.Context().RegistryStr()
	for _, configured := range []string{s.Registry.Repository, s.Registry.PullRepository} {
		if configured != "" && registryHost(configured) == registry {
			return s.writeOptions(ctx)
		}
	}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithRetryBackoff(remote.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 2}),
	}
}

// writeOptions returns the options for the configured registry.
func (s Store) writeOptions(ctx context.Context) []remote.Option {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(s.Registry.keychain()),
		remote.WithTransport(s.Registry.transport()), remote.WithUserAgent("bosh-kubernetes-cpi"),
		remote.WithRetryPredicate(func(err error) bool { return ctx.Err() == nil && isTransient(err) }),
	}
	if s.Backoff.Steps > 0 {
		options = append(options, remote.WithRetryBackoff(s.Backoff))
	}
	return options
}

// isTransient reports whether a retry of the request may succeed.
func isTransient(err error) bool {
	if errors.Is(err, ErrInvalid) {
		return false
	}
	var temporary interface{ Temporary() bool }
	return isConnectionLost(err) || errors.As(err, &temporary) && temporary.Temporary()
}

// keychain returns the configured credentials. The default is the host's.
func (r Registry) keychain() authn.Keychain {
	switch {
	case r.Token != "":
		return staticKeychain{authn.FromConfig(authn.AuthConfig{RegistryToken: string(r.Token)})}
	case r.Username != "":
		return staticKeychain{authn.FromConfig(authn.AuthConfig{Username: r.Username, Password: string(r.Password)})}
	}
	return authn.DefaultKeychain
}

// staticKeychain returns the same credentials for each registry.
type staticKeychain struct{ authn.Authenticator }

// Resolve implements authn.Keychain.
func (c staticKeychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return c.Authenticator, nil
}

// transport returns a transport that trusts the system's and the configured CA certificates. It rejects plain HTTP unless Insecure
// is set, because go-containerregistry falls back to plain HTTP for private addresses, which would expose the credentials.
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

// tlsOnly rejects requests in plain HTTP.
type tlsOnly struct{ http.RoundTripper }

func (t tlsOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%s: %w", request.URL.Host, errPlainHTTP)
	}
	return t.RoundTripper.RoundTrip(request)
}

// repository returns the repository for heavy stemcells.
func (r Registry) repository() (name.Repository, error) {
	options := []name.Option{}
	if r.Insecure {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(r.Repository, options...)
	if err != nil {
		return repository, fmt.Errorf("kubernetes.stemcell.registry.repository: %w", err)
	}
	return repository, nil
}

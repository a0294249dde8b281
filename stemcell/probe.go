package stemcell

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Probe tells whether a heavy stemcell could be pushed: it begins an upload in the configured repository, and cancels it.
// No configured registry is ErrNoRegistry.
func (s Store) Probe(ctx context.Context) error {
	if s.Registry.Repository == "" {
		return ErrNoRegistry
	}
	repository, err := s.Registry.repository()
	if err != nil {
		return err
	}
	return explain("begin an upload to "+repository.Name(), repository.RegistryStr(), s.Registry.beginUpload(ctx, repository))
}

func (r Registry) beginUpload(ctx context.Context, repository name.Repository) error {
	credentials, err := authn.Resolve(ctx, r.keychain(), repository)
	if err != nil {
		return err
	}
	roundTripper, err := transport.NewWithContext(
		ctx,
		repository.Registry,
		credentials,
		r.transport(),
		[]string{repository.Scope(transport.PushScope)},
	)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: roundTripper}
	uploads := fmt.Sprintf("%s://%s/v2/%s/blobs/uploads/", repository.Scheme(), repository.RegistryStr(), repository.RepositoryStr())
	begin, err := http.NewRequestWithContext(ctx, http.MethodPost, uploads, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(begin)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := transport.CheckError(response, http.StatusCreated, http.StatusAccepted); err != nil {
		return err
	}
	// A session that is not canceled, since the registry cannot do that, it forgets after a while.
	if session, err := response.Location(); err == nil {
		if end, err := http.NewRequestWithContext(ctx, http.MethodDelete, session.String(), http.NoBody); err == nil {
			if canceled, err := client.Do(end); err == nil {
				canceled.Body.Close()
			}
		}
	}
	return nil
}

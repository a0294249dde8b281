package stemcell

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Probe checks that heavy stemcells can be pushed: it starts an upload to the configured repository, and cancels it. It returns
// ErrNoRegistry if no registry is configured.
func (s Store) Probe(ctx context.Context) error {
	if s.Registry.Repository == "" {
		return ErrNoRegistry
	}
	repository, err := s.Registry.repository()
	if err != nil {
		return err
	}
	return explain("start an upload to "+repository.Name(), repository.RegistryStr(), s.Registry.tryUpload(ctx, repository))
}

// tryUpload starts an upload, and cancels it.
func (r Registry) tryUpload(ctx context.Context, repository name.Repository) error {
	credentials, err := authn.Resolve(ctx, r.keychain(), repository)
	if err != nil {
		return err
	}
	scopes := []string{repository.Scope(transport.PushScope)}
	roundTripper, err := transport.NewWithContext(ctx, repository.Registry, credentials, r.transport(), scopes)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: roundTripper}
	uploadsURL := fmt.Sprintf("%s://%s/v2/%s/blobs/uploads/", repository.Scheme(), repository.RegistryStr(), repository.RepositoryStr())
	startRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, uploadsURL, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(startRequest)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := transport.CheckError(response, http.StatusCreated, http.StatusAccepted); err != nil {
		return err
	}
	// Errors are ignored: a registry that cannot cancel an upload session lets it expire.
	if session, err := response.Location(); err == nil {
		if cancelRequest, err := http.NewRequestWithContext(ctx, http.MethodDelete, session.String(), http.NoBody); err == nil {
			if canceled, err := client.Do(cancelRequest); err == nil {
				canceled.Body.Close()
			}
		}
	}
	return nil
}

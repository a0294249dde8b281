// Package stemcells implements the CPI methods about stemcells. A stemcell is a container image; package stemcell pushes and reads images.
package stemcells

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/stemcell"
)

// Session serves one request about stemcells.
type Session struct {
	*call.Call
	Options stemcell.Options
	// API is the api_version of the stemcell, or nil if the director does not send it.
	API *int
	// Connect creates the call's client for the cluster, unless it exists, and sends no request. Only deleting a heavy stemcell needs it.
	Connect func() error
}

func (s *Session) store() stemcell.Store { return stemcell.Store{Options: s.Options, Log: s.Log} }

// stemcellError adds the code to an error of package stemcell.
func stemcellError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stemcell.ErrNoRegistry):
		return call.CodeRegistryMissing.Errorf("cannot push the stemcell's root filesystem: %w; set kubernetes.stemcell.registry.repository to "+
			"a repository that the CPI can push to and the nodes can pull from, or convert the stemcell to a light one with "+
			"scripts/build-stemcell", err)
	}
	for _, known := range []struct {
		kind error
		code call.Code
	}{
		{stemcell.ErrInvalid, call.CodeInvalidStemcell},
		{stemcell.ErrFull, call.CodeRegistryFull},
		{stemcell.ErrNotFound, call.CodeImageNotFound},
		{stemcell.ErrDenied, call.CodeRegistryDenied},
		{stemcell.ErrUntrusted, call.CodeRegistryUntrusted},
		{stemcell.ErrDeleteUnsupported, call.CodeRegistryUndeletable},
	} {
		if errors.Is(err, known.kind) {
			return known.code.Wrap(err, false)
		}
	}
	return call.CodeRegistryFailed.Wrap(err, false)
}

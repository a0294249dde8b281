package preflight

import (
	"context"
	"errors"
	"log/slog"

	"bosh-kubernetes-cpi/stemcell"
)

func lookAtRegistry(ctx context.Context, s *subject) finding {
	store := stemcell.Store{Options: s.config.Stemcell, Log: slog.New(slog.DiscardHandler)}
	err := store.Probe(ctx)
	switch {
	case errors.Is(err, stemcell.ErrNoRegistry):
		return ok("none is configured: light stemcells alone can be uploaded")
	case err != nil:
		return fails(err.Error(), "correct stemcell.registry, or what the message names; see docs/stemcells.md")
	}
	return ok(s.config.Stemcell.Registry.Repository + " takes uploads")
}

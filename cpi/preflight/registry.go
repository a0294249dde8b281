package preflight

import (
	"context"
	"errors"
	"log/slog"

	"bosh-kubernetes-cpi/stemcell"
)

func inspectRegistry(ctx context.Context, s *clusterState) finding {
	store := stemcell.Store{Options: s.config.Stemcell, Log: slog.New(slog.DiscardHandler)}
	err := store.Probe(ctx)
	switch {
	case errors.Is(err, stemcell.ErrNoRegistry):
		return pass("no registry is configured; only light stemcells can be uploaded")
	case err != nil:
		return fail(err.Error(), "correct kubernetes.stemcell.registry, or the cause in the message; see docs/guides/stemcells.md")
	}
	return pass(s.config.Stemcell.Registry.Repository + " accepts uploads")
}

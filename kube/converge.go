package kube

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Plan is what to do about an object that may be there: the object to make, or the strategic merge
// patch for the one that is (no patch: it is right as it is).
type Plan[T object] struct {
	Create T
	Patch  []byte
}

// Converge looks for the object and does what plan says, from the start again when someone else was
// faster. One that is on its way out is waited for.
func (r *Resource[T, L]) Converge(ctx context.Context, name string, plan func(left T, exists bool) (Plan[T], error)) error {
	for {
		left, err := r.Get(ctx, name)
		exists := err == nil
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if exists && left.GetDeletionTimestamp() != nil {
			if err := r.AwaitGone(ctx, left); err != nil {
				return err
			}
			continue
		}
		todo, err := plan(left, exists)
		switch {
		case err != nil:
			return err
		case !exists:
			_, err = r.Create(ctx, todo.Create)
		case todo.Patch != nil:
			_, err = r.Patch(ctx, name, types.StrategicMergePatchType, todo.Patch)
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

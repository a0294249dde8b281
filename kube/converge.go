package kube

import (
	"context"
	"errors"
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
	for pause := turns(); ; {
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
			_, err = r.Patch(ctx, name, todo.Patch)
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			return err
		}
		if !sleep(ctx, pause.Step()) {
			return r.interrupted(ctx, Selection{Name: name})
		}
	}
}

// Bring makes the object. One of its name that is there already is for settle to judge: it either
// keeps it, or sees to it that it goes, or waits until more is known; then it is tried again. The
// object that is there in the end is returned; made tells that this call made it.
func (r *Resource[T, L]) Bring(ctx context.Context, wanted T, settle func(left T) (keep bool, err error)) (there T, made bool, err error) {
	var none T
	for pause := turns(); ; {
		there, err := r.Create(ctx, wanted)
		if err == nil {
			return there, true, nil
		}
		if !errors.Is(err, ErrExists) {
			return none, false, err
		}
		left, err := r.Get(ctx, wanted.GetName())
		if err == nil {
			keep, err := settle(left)
			if err != nil {
				return none, false, err
			}
			if keep {
				return left, false, nil
			}
		} else if !errors.Is(err, ErrNotFound) {
			return none, false, err
		}
		if !sleep(ctx, pause.Step()) {
			return none, false, r.interrupted(ctx, Selection{Name: wanted.GetName()})
		}
	}
}

// Remove deletes exactly this object, and waits until it is gone.
func (r *Resource[T, L]) Remove(ctx context.Context, doomed T) error {
	if err := r.Delete(ctx, doomed); err != nil {
		return err
	}
	return r.AwaitGone(ctx, doomed)
}

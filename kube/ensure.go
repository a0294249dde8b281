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

// CreateOrPatch looks for the object and does what plan says, from the start again when someone else was
// faster. One that is on its way out is waited for.
func (r *Resource[T, L]) CreateOrPatch(ctx context.Context, name string, plan func(existing T, exists bool) (Plan[T], error)) error {
	for pause := conflictBackoff(); ; {
		existing, err := r.Get(ctx, name)
		exists := err == nil
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if exists && existing.GetDeletionTimestamp() != nil {
			if err := r.WaitDeleted(ctx, existing); err != nil {
				return err
			}
			continue
		}
		change, err := plan(existing, exists)
		switch {
		case err != nil:
			return err
		case !exists:
			_, err = r.Create(ctx, change.Create)
		case change.Patch != nil:
			_, err = r.Patch(ctx, name, change.Patch)
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			return err
		}
		if !sleep(ctx, pause.Step()) {
			return r.interruptedError(ctx, Selection{Name: name})
		}
	}
}

// Ensure makes the object. One of its name that is there already is for settle to judge: it either
// keeps it, or sees to it that it goes, or waits until more is known; then it is tried again. The
// object that is there in the end is returned; made tells that this call made it.
func (r *Resource[T, L]) Ensure(
	ctx context.Context,
	desired T,
	resolve func(existing T) (keep bool, err error),
) (obj T, created bool, err error) {
	var none T
	for pause := conflictBackoff(); ; {
		stored, err := r.Create(ctx, desired)
		if err == nil {
			return stored, true, nil
		}
		if !errors.Is(err, ErrExists) {
			return none, false, err
		}
		existing, err := r.Get(ctx, desired.GetName())
		if err == nil {
			keep, err := resolve(existing)
			if err != nil {
				return none, false, err
			}
			if keep {
				return existing, false, nil
			}
		} else if !errors.Is(err, ErrNotFound) {
			return none, false, err
		}
		if !sleep(ctx, pause.Step()) {
			return none, false, r.interruptedError(ctx, Selection{Name: desired.GetName()})
		}
	}
}

// DeleteAndWait deletes exactly this object, and waits until it is gone.
func (r *Resource[T, L]) DeleteAndWait(ctx context.Context, obj T) error {
	if err := r.Delete(ctx, obj); err != nil {
		return err
	}
	return r.WaitDeleted(ctx, obj)
}

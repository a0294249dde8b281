package kube

import (
	"context"
	"errors"
)

// Plan is what to do about an object that may exist: Create, if it does not exist; otherwise Patch, a strategic merge patch. A nil
// Patch leaves the object unchanged.
type Plan[T object] struct {
	Create T
	Patch  []byte
}

// CreateOrPatch gets the object, and applies what plan returns for it. It starts over when the object was created, changed or
// deleted in between (ErrExists, ErrConflict, ErrNotFound), and waits while an existing object is being deleted. It returns the
// errors of plan and all other errors of requests.
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

// Ensure creates the object, or keeps one that exists. For an existing object of that name it calls resolve, which either
// reports that the object can be kept, or deletes it or waits, before Ensure tries to create it again.
//
// It returns the object that exists in the end. created means that this call has certainly created it: after a lost answer,
// resolve gets the object that an earlier attempt of this call has created. It returns the errors of resolve, and those of
// requests except ErrExists, and ErrNotFound between two attempts.
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

// DeleteAndWait deletes exactly this object, by UID, and waits until it is gone.
func (r *Resource[T, L]) DeleteAndWait(ctx context.Context, obj T) error {
	if err := r.Delete(ctx, obj); err != nil {
		return err
	}
	return r.WaitDeleted(ctx, obj)
}

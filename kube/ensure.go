package kube

import (
	"context"
	"errors"
)

// Plan is the change that CreateOrPatch makes.
type Plan[T Object] struct {
	Create T      // the object to create if it does not exist; nil creates none
	Patch  []byte // the strategic merge patch for an existing object; nil leaves it unchanged
}

// CreateOrPatch gets the object, calls plan, and applies the returned Plan. It starts over if the object is created, changed or
// deleted in the meantime. If an existing object is being deleted, CreateOrPatch waits for that first. It returns the errors of
// plan, and those of requests except ErrExists, ErrConflict and ErrNotFound, unless the namespace does not exist.
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
		planned, err := plan(existing, exists)
		var none T
		switch {
		case err != nil:
			return err
		case !exists && any(planned.Create) == any(none):
			return nil
		case !exists:
			_, err = r.Create(ctx, planned.Create)
		case planned.Patch != nil:
			_, err = r.Patch(ctx, name, planned.Patch)
		}
		if errors.Is(err, ErrNoNamespace) || !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
			return err
		}
		if !sleep(ctx, pause.Step()) {
			return r.interruptedError(ctx, Selection{Name: name})
		}
	}
}

// Ensure creates the object, or keeps an existing one. If an object of that name exists and keep returns false for it, Ensure calls remove,
// which has to delete that object, or to wait until another client did, and tries again.
//
// Ensure returns the object that exists in the end. created reports whether Ensure knows that it created the object. It is false
// after a lost response: then keep gets the object that Ensure created itself. Ensure returns the errors of keep and remove, and those
// of requests except ErrExists and ErrNotFound.
func (r *Resource[T, L]) Ensure(
	ctx context.Context,
	desired T,
	keep func(existing T) (bool, error),
	remove func(existing T) error,
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
		switch {
		case err == nil:
			kept, err := keep(existing)
			if kept && err == nil {
				return existing, false, nil
			}
			if err == nil {
				err = remove(existing)
			}
			if err != nil {
				return none, false, err
			}
		case !errors.Is(err, ErrNotFound):
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

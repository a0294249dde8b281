package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// errRelist means that a watch cannot continue, because it was closed or its resource version expired (410 Gone).
var errRelist = errors.New("the watch must start over")

// Wait watches the selected objects until condition returns true or an error.
//
// Wait calls condition with all selected objects that exist: first with those in since, and then after each change. If since is nil,
// or a watch ends, Wait lists the objects. condition may send requests; the watch stays open meanwhile.
//
// If the context ends first, Wait returns ErrTimeout or ErrCanceled.
func (r *Resource[T, L]) Wait(ctx context.Context, selection Selection, since *ObjectList[T], condition func([]T) (bool, error)) error {
	pause := backoff()
	for {
		if since == nil {
			listed, err := r.List(ctx, selection)
			if err != nil {
				return err
			}
			since = &listed
		}
		if done, err := condition(since.Items); done || err != nil {
			return err
		}
		err := r.watchUntil(ctx, selection, *since, condition)
		if !errors.Is(err, errRelist) {
			return err
		}
		since = nil
		if !sleep(ctx, pause.Step()) {
			return r.interruptedError(ctx, selection)
		}
	}
}

// interruptedError returns the error of a wait after its context ended.
func (r *Resource[T, L]) interruptedError(ctx context.Context, selection Selection) error {
	return r.translate(r.action("wait for", selection.String()), ctx.Err())
}

func (r *Resource[T, L]) watchUntil(
	ctx context.Context,
	selection Selection,
	since ObjectList[T],
	condition func([]T) (bool, error),
) error {
	options := selection.options()
	options.ResourceVersion = since.ResourceVersion
	stream, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (watch.Interface, error) {
		return r.watch(ctx, options)
	})
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return errRelist
	case ctx.Err() != nil:
		return r.interruptedError(ctx, selection)
	case err != nil:
		return r.translate(r.action("watch", selection.String()), err)
	}
	defer stream.Stop()

	present := since.Items
	for {
		select {
		case <-ctx.Done():
			return r.interruptedError(ctx, selection)
		case event, open := <-stream.ResultChan():
			if !open || event.Type == watch.Error {
				return errRelist
			}
			changed, ok := event.Object.(T)
			if !ok {
				return fmt.Errorf("%s: unexpected watch event of type %T", r.action("watch", selection.String()), event.Object)
			}
			present = replace(present, changed, event.Type == watch.Deleted)
			if done, err := condition(present); done || err != nil {
				return err
			}
		}
	}
}

// replace returns the objects with changed instead of its previous version, or without it if it was deleted.
func replace[T Object](present []T, changed T, deleted bool) []T {
	updated := slices.DeleteFunc(slices.Clone(present), func(item T) bool { return item.GetName() == changed.GetName() })
	if !deleted {
		updated = append(updated, changed)
	}
	return updated
}

// ListOf returns a list of only this object, as returned by the API server. Wait can start from it instead of listing objects.
func ListOf[T Object](obj T) *ObjectList[T] {
	return &ObjectList[T]{Items: []T{obj}, ResourceVersion: obj.GetResourceVersion()}
}

// WaitDeleted waits until exactly this object, by UID, is gone; a new object of the same name may exist. For errors, see Wait.
func (r *Resource[T, L]) WaitDeleted(ctx context.Context, obj T) error {
	return r.Wait(ctx, Selection{Name: obj.GetName()}, nil, func(present []T) (bool, error) {
		return len(present) == 0 || present[0].GetUID() != obj.GetUID(), nil
	})
}

package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// errRelist ends a watch that cannot go on: it closed, or its history expired (410 Gone).
var errRelist = errors.New("the watch must start over")

// Wait follows the selected objects until settled says that they are as wanted, or fails.
//
// settled sees every object that is there, first as in since (or as listed, when since is nil), then
// after each change; an object that was deleted is not among them. It may act, for example delete
// what has become free; the watch stays open meanwhile. A watch that ends is started over from a
// fresh list, so that no change is missed.
//
// When the context ends first, the error is ErrTimeout.
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

// interruptedError is the error of a wait whose context has ended.
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
				return fmt.Errorf("%s: the watch brought a %T", r.action("watch", selection.String()), event.Object)
			}
			present = replace(present, changed, event.Type == watch.Deleted)
			if done, err := condition(present); done || err != nil {
				return err
			}
		}
	}
}

// replace returns the objects with changed put in the place of its former version, or left out.
func replace[T object](present []T, changed T, deleted bool) []T {
	updated := make([]T, 0, len(present)+1)
	for _, item := range present {
		if item.GetName() != changed.GetName() {
			updated = append(updated, item)
		}
	}
	if !deleted {
		updated = append(updated, changed)
	}
	return updated
}

// ListOf is the snapshot of a selection that holds just this object, as an answer of the API server
// brought it: a watch can go on from there without listing first.
func ListOf[T object](obj T) *ObjectList[T] {
	return &ObjectList[T]{Items: []T{obj}, ResourceVersion: obj.GetResourceVersion()}
}

// WaitDeleted waits until exactly this object is gone; a successor with its name does not count.
func (r *Resource[T, L]) WaitDeleted(ctx context.Context, obj T) error {
	return r.Wait(ctx, Selection{Name: obj.GetName()}, nil, func(present []T) (bool, error) {
		return len(present) == 0 || present[0].GetUID() != obj.GetUID(), nil
	})
}

package simulated

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchUntilDone calls handle for each existing object and each change, until the context is canceled. The API server closes a watch after
// some time, or if the client is too slow. watchUntilDone then starts a new watch, which begins with the existing objects. It also does
// that a second after a request of handle failed, for example on a busy machine. A request that the API server rejects is not repeated: the
// object changed or is gone since the event.
func watchUntilDone(
	ctx context.Context,
	startWatch func(context.Context, metav1.ListOptions) (watch.Interface, error),
	handle func(watch.Event) error,
) error {
	for ctx.Err() == nil {
		stream, err := startWatch(ctx, metav1.ListOptions{})
		if err == nil {
			err = handleEvents(stream, handle)
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func handleEvents(stream watch.Interface, handle func(watch.Event) error) error {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if err := handle(event); err != nil && !isRejected(err) {
			return err
		}
	}
	return nil
}

// isRejected reports whether the API server answered the request, and would answer it again with an error.
func isRejected(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code < http.StatusInternalServerError && status.ErrStatus.Code != http.StatusTooManyRequests
}

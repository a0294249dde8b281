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
// some time, or if the client is too slow. watchUntilDone then starts a new watch, which begins with the existing objects.
func watchUntilDone(
	ctx context.Context,
	startWatch func(context.Context, metav1.ListOptions) (watch.Interface, error),
	handle func(watch.Event) error,
) {
	for ctx.Err() == nil {
		stream, err := startWatch(ctx, metav1.ListOptions{})
		if err != nil {
			pause(ctx)
			continue
		}
		handleEvents(ctx, stream, handle)
	}
}

// handleEvents calls handle for each event, again if a request failed, for example on a busy machine. After three attempts it goes on: a
// webhook of a test may fail for longer. A request that the API server rejects is not repeated: the object changed or is gone since the
// event.
func handleEvents(ctx context.Context, stream watch.Interface, handle func(watch.Event) error) {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		for range 3 {
			if err := handle(event); err == nil || isRejected(err) || ctx.Err() != nil {
				break
			}
			pause(ctx)
		}
	}
}

// isRejected reports whether the API server answered the request, and would answer it again with an error.
func isRejected(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code < http.StatusInternalServerError && status.ErrStatus.Code != http.StatusTooManyRequests
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(500 * time.Millisecond):
	}
}

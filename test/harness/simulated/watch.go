package simulated

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchUntilDone calls handle for each existing object and each change, until the context is canceled or handle fails. The API server
// closes a watch after some time, or if the client is too slow. watchUntilDone then starts a new watch, which begins with the existing
// objects.
func watchUntilDone(
	ctx context.Context,
	startWatch func(context.Context, metav1.ListOptions) (watch.Interface, error),
	handle func(watch.Event) error,
) error {
	for ctx.Err() == nil {
		stream, err := startWatch(ctx, metav1.ListOptions{})
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		err = handleEvents(stream, handle)
		if err != nil {
			return err
		}
	}
	return nil
}

func handleEvents(stream watch.Interface, handle func(watch.Event) error) error {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if err := handle(event); err != nil {
			return err
		}
	}
	return nil
}

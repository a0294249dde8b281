package simulated

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchUntilDone calls handle for each existing object and each change, until the context is canceled. The API server closes a watch after
// some time, or if the client is too slow. watchUntilDone then starts a new watch, which begins with the existing objects.
func watchUntilDone(ctx context.Context, startWatch func(context.Context, metav1.ListOptions) (watch.Interface, error), handle func(watch.Event)) {
	for ctx.Err() == nil {
		stream, err := startWatch(ctx, metav1.ListOptions{})
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for event := range stream.ResultChan() {
			handle(event)
		}
		stream.Stop()
	}
}

// statusPatch returns a merge patch with this status.
func statusPatch(status map[string]any) []byte {
	patch, _ := json.Marshal(map[string]any{"status": status}) // never fails for these objects
	return patch
}

package cpi

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// A sentinel follows something else than the Pods that are waited for, and fails once they cannot become
// as wanted any more.
type sentinel func(ctx context.Context) error

// sentinelPatience is how long a wait goes on before its sentinels begin. Most waits end sooner, and need
// not ask for more than their Pods.
const sentinelPatience = 5 * time.Second

// awaitUnless waits as Pods.Await does, until a sentinel fails; its error is the wait's then.
func (c *call) awaitUnless(cluster *kube.Client, sentinels []sentinel, which kube.Selection, since *kube.Snapshot[*corev1.Pod],
	settled func([]*corev1.Pod) (bool, error)) error {

	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	for _, each := range sentinels {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(sentinelPatience):
			}
			var hopeless *Error
			switch err := each(ctx); {
			case errors.As(err, &hopeless):
				cancel(err)
			case err != nil && ctx.Err() == nil:
				c.log.Warn("a wait goes on without looking at what it depends on", "error", err)
			}
		}()
	}
	err := cluster.Pods.Await(ctx, which, since, settled)
	var hopeless *Error
	if err != nil && c.ctx.Err() == nil && errors.As(context.Cause(ctx), &hopeless) {
		return hopeless
	}
	return err
}

// errNeverStarts: a kubelet ended between making a container and starting it. The next kubelet takes it
// for one that was run.
var errNeverStarts = errors.New("a restart of the kubelet lost it")

// starts is the sentinel for a container that runs once in an attachment.
func (c *call) starts(cluster *kube.Client, attachment, container string) sentinel {
	return func(ctx context.Context) error {
		return cluster.Pods.Await(ctx, kube.Selection{Name: attachment}, nil, func(present []*corev1.Pod) (bool, error) {
			if len(present) > 0 && manifest.Unstarted(present[0], container) {
				return false, typed(typeCloudError, "container %s of Pod %s was not started: %w", container, attachment, errNeverStarts)
			}
			return len(present) == 0, nil
		})
	}
}

// provisions is the sentinel for the volume of a claim that gets one at its first use.
func (c *call) provisions(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) []sentinel {
	if kube.Bound(claim) {
		return nil
	}
	return []sentinel{func(ctx context.Context) error {
		var outlook kube.Provisioning
		return cluster.Events.Await(ctx, kube.Selection{Fields: "involvedObject.uid=" + string(claim.UID)}, nil, func(events []*corev1.Event) (bool, error) {
			if said := outlook.Hopeless(events); said != "" {
				return false, typed(typeCloudError, "disk %s cannot be attached: it gets no volume: %s", claim.Name, said)
			}
			return false, nil
		})
	}}
}

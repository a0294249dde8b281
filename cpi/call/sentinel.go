package call

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// A Sentinel follows something else than the Pods that are waited for, and fails once they cannot become
// as wanted any more.
type Sentinel func(ctx context.Context) error

// sentinelPatience is how long a wait goes on before its sentinels begin. Most waits end sooner, and need
// not ask for more than their Pods.
const sentinelPatience = 5 * time.Second

// AwaitUnless waits as Pods.Await does, until a sentinel fails; its error is the wait's then.
func (c *Call) AwaitUnless(sentinels []Sentinel, which kube.Selection, since *kube.Snapshot[*corev1.Pod],
	settled func([]*corev1.Pod) (bool, error)) error {

	ctx, cancel := context.WithCancelCause(c.Ctx)
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
				c.Log.Warn("a wait goes on without looking at what it depends on", "error", err)
			}
		}()
	}
	err := c.Pods.Await(ctx, which, since, settled)
	var hopeless *Error
	if err != nil && c.Ctx.Err() == nil && errors.As(context.Cause(ctx), &hopeless) {
		return hopeless
	}
	return err
}

// Follow waits as AwaitUnless does for exactly this Pod, and keeps it up to date: settled sees it as it is, then
// after each change, and nil once it is gone. A successor of its name is another Pod.
func (c *Call) Follow(sentinels []Sentinel, pod *corev1.Pod, settled func(now *corev1.Pod) (bool, error)) error {
	return c.AwaitUnless(sentinels, kube.Selection{Name: pod.Name}, kube.At(pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID {
			return settled(nil)
		}
		*pod = *present[0]
		return settled(pod)
	})
}

// ErrLost means that an ephemeral container has told nothing of what it was to find. A kubelet ended between making it
// and starting it, so that the next one takes it for one that was run, or while it was being made; or it was killed.
var ErrLost = errors.New("what it was to find is lost")

// Starts is the sentinel for an ephemeral container: it fails when the container never starts.
func (c *Call) Starts(pod, container string) Sentinel {
	return func(ctx context.Context) error {
		return c.Pods.Await(ctx, kube.Selection{Name: pod}, nil, func(present []*corev1.Pod) (bool, error) {
			if len(present) > 0 && kube.EphemeralUnstarted(present[0], container) {
				return false, CloudError.Errorf("container %s of Pod %s was not started: %w", container, pod, ErrLost)
			}
			return len(present) == 0, nil
		})
	}
}

package call

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// A DependencyWatch follows something other than the Pods that a call waits for, and fails once they cannot reach the desired
// state.
type DependencyWatch func(ctx context.Context) error

// dependencyWatchDelay is how long a wait goes on before its dependency watches begin. Most waits end sooner, and need
// no requests for more than their Pods.
const dependencyWatchDelay = 5 * time.Second

// WaitForPods waits as Pods.Await does, until a sentinel fails; its error is the wait's then.
func (c *Call) WaitForPods(watches []DependencyWatch, selection kube.Selection, since *kube.ObjectList[*corev1.Pod],
	done func([]*corev1.Pod) (bool, error)) error {

	ctx, cancel := context.WithCancelCause(c.Ctx)
	defer cancel(nil)
	for _, watch := range watches {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(dependencyWatchDelay):
			}
			var failed *Error
			switch err := watch(ctx); {
			case errors.As(err, &failed):
				cancel(err)
			case err != nil && ctx.Err() == nil:
				c.Log.Warn("a wait goes on without looking at what it depends on", "error", err)
			}
		}()
	}
	err := c.Pods.Wait(ctx, selection, since, done)
	var failed *Error
	if err != nil && c.Ctx.Err() == nil && errors.As(context.Cause(ctx), &failed) {
		return failed
	}
	return err
}

// WaitForPod waits as AwaitUnless does for exactly this Pod, and keeps it up to date: settled sees it as it is, then
// after each change, and nil once it is gone. A successor of its name is another Pod.
func (c *Call) WaitForPod(watches []DependencyWatch, pod *corev1.Pod, done func(now *corev1.Pod) (bool, error)) error {
	return c.WaitForPods(watches, kube.Selection{Name: pod.Name}, kube.ListOf(pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID {
			return done(nil)
		}
		*pod = *present[0]
		return done(pod)
	})
}

// ErrResultLost means that an ephemeral container has told nothing of what it was to find. A kubelet ended between making it
// and starting it, so that the next one takes it for one that was run, or while it was being made; or it was killed.
var ErrResultLost = errors.New("what it was to find is lost")

// WatchContainerStart is the sentinel for an ephemeral container: it fails when the container never starts.
func (c *Call) WatchContainerStart(pod, container string) DependencyWatch {
	return func(ctx context.Context) error {
		return c.Pods.Wait(ctx, kube.Selection{Name: pod}, nil, func(present []*corev1.Pod) (bool, error) {
			if len(present) > 0 && kube.EphemeralNotStarted(present[0], container) {
				return false, CloudError.Errorf("container %s of Pod %s was not started: %w", container, pod, ErrResultLost)
			}
			return len(present) == 0, nil
		})
	}
}

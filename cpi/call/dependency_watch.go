package call

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// A DependencyWatch watches something that a wait for Pods depends on. It returns an *Error when the Pods can no longer reach the
// desired state.
type DependencyWatch func(ctx context.Context) error

// dependencyWatchDelay is how long a wait runs before its dependency watches start. Most waits end earlier and watch only their
// Pods.
const dependencyWatchDelay = 5 * time.Second

// WaitForPods is c.Pods.Wait with dependency watches. When one of them returns an *Error, the wait ends with that error. Other
// errors of a dependency watch are only logged.
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
			var failure *Error
			switch err := watch(ctx); {
			case errors.As(err, &failure):
				cancel(err)
			case err != nil && ctx.Err() == nil:
				c.Log.Warn("dependency watch failed; still waiting", "error", err)
			}
		}()
	}
	err := c.Pods.Wait(ctx, selection, since, done)
	var failure *Error
	if err != nil && c.Ctx.Err() == nil && errors.As(context.Cause(ctx), &failure) {
		return failure
	}
	return err
}

// WaitForPod is WaitForPods for exactly this Pod, by UID. It updates pod, and calls done with the current state, after each change,
// and with nil when the Pod is gone.
func (c *Call) WaitForPod(watches []DependencyWatch, pod *corev1.Pod, done func(current *corev1.Pod) (bool, error)) error {
	return c.WaitForPods(watches, kube.Selection{Name: pod.Name}, kube.ListOf(pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID {
			return done(nil)
		}
		*pod = *present[0]
		return done(pod)
	})
}

// ErrResultLost reports that an ephemeral container has no result. Either it was killed, or the kubelet stopped before starting it:
// a restarted kubelet assumes that such a container already ran, and does not start it.
var ErrResultLost = errors.New("the result was lost")

// WatchContainerStart returns a dependency watch that fails if the ephemeral container was created but will never start.
func (c *Call) WatchContainerStart(pod, container string) DependencyWatch {
	return func(ctx context.Context) error {
		return c.Pods.Wait(ctx, kube.Selection{Name: pod}, nil, func(present []*corev1.Pod) (bool, error) {
			if len(present) > 0 && kube.EphemeralNotStarted(present[0], container) {
				return false, CodeHelperInterrupted.Errorf("%w: container %s of Pod %s was never started", ErrResultLost, container, pod)
			}
			return len(present) == 0, nil
		})
	}
}

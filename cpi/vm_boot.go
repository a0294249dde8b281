package cpi

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

var (
	errPodEnded      = errors.New("the Pod ended")
	errPodStuck      = errors.New("waiting longer does not help")
	errUnschedulable = errors.New("no node takes the Pod")
	errReplaced      = errors.New("deleted by someone else")
)

// awaitVM waits until the machine is up and has the address that was asked for. Where waiting cannot
// help it does not wait.
func (c *call) awaitVM(cluster *kube.Client, pod *corev1.Pod, networks Networks) error {
	err := c.awaitBoot(cluster, pod)
	if err == nil {
		return networks.verify(pod)
	}
	for _, each := range []struct {
		cause error
		retry bool
	}{
		{kube.ErrTimeout, true}, {errPodEnded, true}, {errUnschedulable, true}, // another node, or time, may help
		{errPodStuck, false}, // the operator has to change something
	} {
		if errors.Is(err, each.cause) {
			detached, cancel := c.detached()
			defer cancel()
			return &Error{kind: typeVMFailed, retry: each.retry, err: &explained{err, "VM " + pod.Name + " did not come up: " + cluster.Explain(detached.ctx, pod)}}
		}
	}
	return err
}

// boot is what is known of a machine that is coming up.
type boot struct {
	outlook kube.Outlook
	claim   bool // whether its claim was looked at
}

// awaitBoot follows the Pod until it is up. Unschedulable it may be for as long as the configuration
// allows, at one go: an autoscaler may bring a node.
func (c *call) awaitBoot(cluster *kube.Client, pod *corev1.Pod) error {
	var known boot
	limit := c.config.Timeouts.Unschedulable
	for {
		if !known.claim && kube.Unbound(pod) {
			known.claim = true
			why, err := cluster.MissingClass(c.ctx, manifest.EphemeralClaim(pod.Name))
			if err != nil {
				return err
			}
			if why != "" {
				return fmt.Errorf("%w: %s", errPodStuck, why)
			}
		}
		ctx, cancel := c.ctx, func() {}
		waiting := limit != nil && kube.NoNode(pod)
		if waiting {
			ctx, cancel = context.WithTimeout(c.ctx, limit.Duration)
		}
		up, err := c.followBoot(ctx, cluster, pod, &known)
		cancel()
		switch {
		case errors.Is(err, kube.ErrTimeout) && waiting && c.ctx.Err() == nil:
			return fmt.Errorf("%w after %s", errUnschedulable, limit.Duration)
		case up || err != nil:
			return err
		}
	}
}

// followBoot follows the Pod until it is up, which it answers, or cannot come up, or what awaitBoot
// goes by has changed.
func (c *call) followBoot(ctx context.Context, cluster *kube.Client, pod *corev1.Pod, known *boot) (up bool, err error) {
	waiting := kube.NoNode(pod)
	err = cluster.Pods.Await(ctx, kube.Selection{Name: pod.Name}, kube.At(pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
			return false, typed(typeVMFailed, "Pod %s was %w while it was coming up", pod.Name, errReplaced)
		}
		*pod = *present[0]
		up = kube.Ready(pod)
		switch {
		case kube.Finished(pod):
			return false, errPodEnded
		case known.outlook.Hopeless(pod):
			return false, errPodStuck
		case up:
			return true, nil
		case c.config.Timeouts.Unschedulable != nil && kube.NoNode(pod) != waiting:
			return true, nil
		}
		return !known.claim && kube.Unbound(pod), nil
	})
	return up, err
}

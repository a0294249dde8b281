package call

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// RunErrand makes a Pod that runs once, waits until it has ended well, and removes it. One that a call
// which was cut short left makes room. what says in an error what did not happen.
func (c *Call) RunErrand(wanted *corev1.Pod, what string) error {
	errand, _, err := c.Pods.Bring(c.Ctx, wanted, func(left *corev1.Pod) (bool, error) {
		return false, c.End(left)
	})
	if err != nil {
		return err
	}
	err = c.awaitErrand(errand, what)
	detached, cancel := c.Detached()
	defer cancel()
	return errors.Join(err, c.Pods.Delete(detached.Ctx, errand))
}

func (c *Call) awaitErrand(errand *corev1.Pod, what string) error {
	err := c.Follow(c.NodeFails(errand.Spec.NodeName), errand, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, CloudError.Errorf("Pod %s was deleted by someone else", errand.Name)
		}
		if errand.Status.Phase != corev1.PodFailed {
			return errand.Status.Phase == corev1.PodSucceeded, nil
		}
		why := ""
		for _, status := range errand.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				why = strings.TrimSpace(status.State.Terminated.Message)
			}
		}
		return false, CloudError.Errorf("%s: %s", what, why)
	})
	return c.ExplainTimeout(errand, err, what)
}

package call

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

// RunErrand makes a Pod that runs once, waits until it has ended well, and removes it. One that a call
// which was cut short left makes room. what says in an error what did not happen.
func (c *Call) RunErrand(wanted *corev1.Pod, what string) error {
	errand, _, err := c.BringHelper(wanted, func(left *corev1.Pod) (bool, error) {
		return false, c.End(left)
	})
	if err != nil {
		return err
	}
	err = c.AwaitErrand(errand, what)
	detached, cancel := c.Detached(CleanupTime)
	defer cancel()
	return errors.Join(err, c.Pods.Delete(detached.Ctx, errand))
}

// AwaitErrand waits until a Pod that runs once has ended well; errand is then as it was at its end. what says in an error what did
// not happen.
func (c *Call) AwaitErrand(errand *corev1.Pod, what string) error {
	err := c.Follow(c.NodeFails(errand.Spec.NodeName), errand, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, CloudError.Errorf("Pod %s was deleted by someone else", errand.Name)
		}
		if over, well := manifest.Outcome(now); !over || well {
			return over, nil
		}
		why := ""
		if ended := manifest.OwnStatus(errand).State.Terminated; ended != nil {
			why = strings.TrimSpace(ended.Message)
		}
		return false, CloudError.Errorf("%s: %s", what, why)
	})
	return c.ExplainTimeout(errand, err, what)
}

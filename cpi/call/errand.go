package call

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// errandTries is how often a Pod that runs once is made when its container cannot be started, as while its kubelet restarts: no
// kubelet tries that again.
const errandTries = 3

// RunErrand makes a Pod that runs once, waits until it has ended well, and removes it. One that a call
// which was cut short left makes room. what says in an error what did not happen.
func (c *Call) RunErrand(wanted *corev1.Pod, what string) error {
	for try := 1; ; try++ {
		errand, err := c.runErrand(wanted, what)
		ended := manifest.OwnStatus(errand).State.Terminated
		if err == nil || ended == nil || !kube.NeverRan(ended) || try == errandTries {
			return err
		}
		c.Log.Info("making it again: its container could not be started", "pod", wanted.Name, "why", ended.Message)
	}
}

// runErrand is one try of RunErrand, and returns the Pod as it was at its end.
func (c *Call) runErrand(wanted *corev1.Pod, what string) (*corev1.Pod, error) {
	errand, _, err := c.EnsureHelper(wanted, func(left *corev1.Pod) (bool, error) {
		return false, c.End(left)
	})
	if err != nil {
		return wanted, err
	}
	err = c.AwaitErrand(errand, what)
	detached, cancel := c.Detached(CleanupTime)
	defer cancel()
	return errand, errors.Join(err, c.Pods.Delete(detached.Ctx, errand))
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

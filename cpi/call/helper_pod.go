package call

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// maxHelperPodAttempts is how often a Pod that runs once is made when its container cannot be started, as while its kubelet restarts: no
// kubelet tries that again.
const maxHelperPodAttempts = 3

// RunHelperPod makes a Pod that runs once, waits until it has ended well, and removes it. One that a call
// which was cut short left makes room. what says in an error what did not happen.
func (c *Call) RunHelperPod(desired *corev1.Pod, message string) error {
	for attempt := 1; ; attempt++ {
		helperPod, err := c.runHelperPodOnce(desired, message)
		terminated := manifest.OwnContainerStatus(helperPod).State.Terminated
		if err == nil || terminated == nil || !kube.FailedToStart(terminated) || attempt == maxHelperPodAttempts {
			return err
		}
		c.Log.Info("making it again: its container could not be started", "pod", desired.Name, "why", terminated.Message)
	}
}

// runHelperPodOnce is one try of RunErrand, and returns the Pod as it was at its end.
func (c *Call) runHelperPodOnce(desired *corev1.Pod, message string) (*corev1.Pod, error) {
	helperPod, _, err := c.EnsureHelperPod(desired, func(existing *corev1.Pod) (bool, error) {
		return false, c.DeletePodAndWait(existing)
	})
	if err != nil {
		return desired, err
	}
	err = c.WaitForHelperPod(helperPod, message)
	detached, cancel := c.Detached(CleanupTimeout)
	defer cancel()
	return helperPod, errors.Join(err, c.Pods.Delete(detached.Ctx, helperPod))
}

// WaitForHelperPod waits until a Pod that runs once has ended well; errand is then as it was at its end. what says in an error what did
// not happen.
func (c *Call) WaitForHelperPod(helperPod *corev1.Pod, message string) error {
	err := c.WaitForPod(c.WatchNode(helperPod.Spec.NodeName), helperPod, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, CloudError.Errorf("Pod %s was deleted by someone else", helperPod.Name)
		}
		if finished, succeeded := manifest.Outcome(now); !finished || succeeded {
			return finished, nil
		}
		reason := ""
		if terminated := manifest.OwnContainerStatus(helperPod).State.Terminated; terminated != nil {
			reason = strings.TrimSpace(terminated.Message)
		}
		return false, CloudError.Errorf("%s: %s", message, reason)
	})
	return c.ExplainTimeout(helperPod, err, message)
}

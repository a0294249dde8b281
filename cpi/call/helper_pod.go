package call

import (
	"cmp"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// maxHelperPodAttempts limits how often a helper Pod is created if its container cannot be started, for example while the kubelet
// restarts. The kubelet does not retry, because a helper Pod has restartPolicy Never.
const maxHelperPodAttempts = 3

// RunHelperPod creates a Pod that runs once, waits for it to succeed, and deletes it. It replaces a Pod of the same name left by an
// interrupted call. If the Pod fails or times out, the error has this code and begins with message.
func (c *Call) RunHelperPod(code Code, desired manifest.HelperPod, message string) error {
	for attempt := 1; ; attempt++ {
		helperPod, err := c.runHelperPodOnce(code, desired, message)
		terminated := manifest.OwnContainerStatus(helperPod.Pod).State.Terminated
		if err == nil || terminated == nil || !kube.FailedToStart(terminated) || attempt == maxHelperPodAttempts {
			return err
		}
		c.Log.Info("helper container could not be started; retrying", "pod", desired.Name, "reason", terminated.Message)
	}
}

// runHelperPodOnce is one attempt of RunHelperPod. It also returns the last state of the Pod.
func (c *Call) runHelperPodOnce(code Code, desired manifest.HelperPod, message string) (manifest.HelperPod, error) {
	replace := func(*corev1.Pod) Decision { return Replace }
	if err := c.PrepareHelperPod(desired.Pod); err != nil {
		return desired, err
	}
	pod, _, err := EnsureOwned(c, c.Pods, desired.Pod, replace, c.DeletePodAndWait)
	if pod == nil {
		return desired, err
	}
	helperPod := manifest.HelperPod{Pod: pod}
	if err == nil {
		err = c.WaitForHelperPod(code, helperPod, message)
	}
	detached, cancel := c.Detached(CleanupTimeout)
	defer cancel()
	return helperPod, errors.Join(err, c.Pods.Delete(detached.Ctx, pod))
}

// WaitForHelperPod waits for a Pod that runs once to succeed, and updates helperPod. For code and message, see RunHelperPod.
func (c *Call) WaitForHelperPod(code Code, helperPod manifest.HelperPod, message string) error {
	var startup kube.PodStartup
	err := c.WaitForPod(c.WatchNode(helperPod.Spec.NodeName), helperPod.Pod, func(current *corev1.Pod) (bool, error) {
		if current == nil {
			return false, CodeHelperDeleted.Errorf("Pod %s was deleted by another client; retry", helperPod.Name)
		}
		if startup.Failed(helperPod.Pod, manifest.OwnContainerName(helperPod.Pod)) {
			return false, c.StartError(code, helperPod.Pod, message)
		}
		if finished, succeeded := helperPod.Finished(); !finished || succeeded {
			return finished, nil
		}
		reason := helperPod.Status.Reason // for example Evicted
		if terminated := manifest.OwnContainerStatus(helperPod.Pod).State.Terminated; terminated != nil {
			reason = cmp.Or(manifest.TerminationMessage(terminated), terminated.Reason)
		}
		return false, code.Errorf("%s: %s", message, cmp.Or(reason, "the container failed without a message"))
	})
	return c.ExplainTimeout(code, helperPod.Pod, err, message)
}

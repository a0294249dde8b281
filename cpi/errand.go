package cpi

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// runErrand makes a Pod that runs once, waits until it has ended well, and removes it. One that a call
// which was cut short left makes room. what says in an error what did not happen.
func (c *call) runErrand(cluster *kube.Client, wanted *corev1.Pod, what string) error {
	errand, _, err := cluster.Pods.Bring(c.ctx, wanted, func(left *corev1.Pod) (bool, error) {
		return false, c.endPod(cluster, left)
	})
	if err != nil {
		return err
	}
	err = c.awaitErrand(cluster, errand, what)
	detached, cancel := c.detached()
	defer cancel()
	return errors.Join(err, cluster.Pods.Delete(detached.ctx, errand))
}

func (c *call) awaitErrand(cluster *kube.Client, errand *corev1.Pod, what string) error {
	err := c.awaitUnless(cluster, c.answers(cluster, errand.Spec.NodeName), kube.Selection{Name: errand.Name}, kube.At(errand), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 {
			return false, typed(typeCloudError, "Pod %s was deleted by someone else", errand.Name)
		}
		*errand = *present[0]
		if errand.Status.Phase != corev1.PodFailed {
			return errand.Status.Phase == corev1.PodSucceeded, nil
		}
		why := ""
		for _, status := range errand.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				why = strings.TrimSpace(status.State.Terminated.Message)
			}
		}
		return false, typed(typeCloudError, "%s: %s", what, why)
	})
	return c.explainTimeout(cluster, errand, err, what)
}

package call

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// VMSelection selects the VM Pod and its attachment Pods. For a CID that this CPI never creates, for example of another CPI, it
// returns VMNotFound.
func VMSelection(vmCID string) (kube.Selection, error) {
	if !manifest.ValidName(vmCID) {
		return kube.Selection{}, VMNotFoundError(vmCID)
	}
	return kube.Selection{Labels: manifest.LabelVM + "=" + vmCID}, nil
}

// ListVMPods returns the VM Pod and its attachment Pods, and the selection that they match.
func (c *Call) ListVMPods(vmCID string) (kube.ObjectList[*corev1.Pod], kube.Selection, error) {
	selection, err := VMSelection(vmCID)
	if err != nil {
		return kube.ObjectList[*corev1.Pod]{}, selection, err
	}
	found, err := c.Pods.List(c.Ctx, selection)
	return found, selection, err
}

// GetPodTemplate returns the PodTemplate of a VM with disk_strategy: recreate. If the VM does not exist or has no PodTemplate, the
// error is VMNotFound.
func (c *Call) GetPodTemplate(vmCID string) (*corev1.PodTemplate, error) {
	template, err := c.PodTemplates.Get(c.Ctx, vmCID)
	if errors.Is(err, kube.ErrNotFound) ||
		err == nil && (template.DeletionTimestamp != nil || !manifest.HasRole(template, manifest.RoleVMTemplate)) {
		return nil, VMNotFoundError(vmCID)
	}
	return template, err
}

// WaitForDeletion waits until exactly this Pod, by UID, is gone. It fails if the Pod's node becomes unreachable.
func (c *Call) WaitForDeletion(pod *corev1.Pod) error {
	return c.WaitForPods(c.WatchNode(pod.Spec.NodeName), kube.Selection{Name: pod.Name}, nil, func(present []*corev1.Pod) (bool, error) {
		return len(present) == 0 || present[0].UID != pod.UID, nil
	})
}

// DeletePodAndWait deletes exactly this Pod, by UID, and waits until its node stops it. If the decision to delete it depends on its state,
// use DeleteInState of kube.Resource, because the state may have changed.
func (c *Call) DeletePodAndWait(pod *corev1.Pod) error {
	if err := c.Pods.Delete(c.Ctx, pod); err != nil {
		return err
	}
	return c.WaitForDeletion(pod)
}

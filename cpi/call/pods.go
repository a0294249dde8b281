package call

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// OfVM selects a machine's Pod and its attachments. A CID that is no name of ours, as one of another cloud's CPI, is
// VMNotFound.
func OfVM(vm string) (kube.Selection, error) {
	if !manifest.ValidName(vm) {
		return kube.Selection{}, NoVM(vm)
	}
	return kube.Selection{Labels: manifest.LabelVM + "=" + vm}, nil
}

// PodsOf returns a machine's Pod and its attachments, and what they were selected by.
func (c *Call) PodsOf(vm string) (kube.Snapshot[*corev1.Pod], kube.Selection, error) {
	which, err := OfVM(vm)
	if err != nil {
		return kube.Snapshot[*corev1.Pod]{}, which, err
	}
	found, err := c.Pods.List(c.Ctx, which)
	return found, which, err
}

// Machines returns those of the Pods that are machines.
func Machines(pods []*corev1.Pod) []*corev1.Pod {
	return kube.Labeled(pods, manifest.LabelRole, manifest.RoleVM)
}

// Attachments returns those of the Pods that attach disks.
func Attachments(pods []*corev1.Pod) []*corev1.Pod {
	return kube.Labeled(pods, manifest.LabelRole, manifest.RoleAttachment)
}

// Template returns the PodTemplate of a machine that is made again for each disk. A machine without one is
// VMNotFound.
func (c *Call) Template(vm string) (*corev1.PodTemplate, error) {
	template, err := c.Templates.Get(c.Ctx, vm)
	if errors.Is(err, kube.ErrNotFound) ||
		err == nil && (template.DeletionTimestamp != nil || template.Labels[manifest.LabelRole] != manifest.RoleTemplate) {
		return nil, NoVM(vm)
	}
	return template, err
}

// AwaitGone waits until exactly this Pod is gone, unless its node falls silent.
func (c *Call) AwaitGone(doomed *corev1.Pod) error {
	return c.AwaitUnless(c.NodeFails(doomed.Spec.NodeName), kube.Selection{Name: doomed.Name}, nil, func(present []*corev1.Pod) (bool, error) {
		return len(present) == 0 || present[0].UID != doomed.UID, nil
	})
}

// End deletes exactly this Pod, and waits until its node has stopped it.
func (c *Call) End(pod *corev1.Pod) error {
	if err := c.Pods.Delete(c.Ctx, pod); err != nil {
		return err
	}
	return c.AwaitGone(pod)
}

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

// Adopt makes a Pod that another call has made this one's own, so that no failure of that other undoes it.
func (c *Call) Adopt(pod *corev1.Pod) (*corev1.Pod, error) {
	patch, err := manifest.AnnotatePod(pod, map[string]string{manifest.AnnotationCall: c.ID()})
	if err != nil {
		return nil, err
	}
	return c.Pods.Patch(c.Ctx, pod.Name, patch)
}

// EndOwn is End for a Pod that this call has made, or adopted. One that another call has adopted since stays, and
// mine is false. What changes in between, as the kubelet's reports do, is looked at again.
func (c *Call) EndOwn(pod *corev1.Pod) (mine bool, err error) {
	for {
		now, err := c.Pods.Get(c.Ctx, pod.Name)
		switch {
		case errors.Is(err, kube.ErrNotFound), err == nil && now.UID != pod.UID:
			return true, nil
		case err != nil:
			return false, err
		case now.Annotations[manifest.AnnotationCall] != c.ID():
			return false, nil
		}
		err = c.Pods.DeleteUnchanged(c.Ctx, now)
		if err == nil {
			return true, c.AwaitGone(now)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return false, err
		}
	}
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

package vm

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Delete removes the machine first, so that nothing uses its disks any more, then their
// attachments, and then makes the disks free, which stay. The Secret is left to the garbage collector.
//
// On a node that does not answer the machine's deletion is asked for as well, and the call fails: the
// machine is gone when the node has come back, or the operator has said that it is off.
func (s *Session) Delete(vmCID string) error {
	found, selection, err := s.ListVMPods(vmCID)
	if err != nil {
		return err
	}
	template, err := s.findTemplate(vmCID, found.Items)
	if err != nil {
		return err
	}
	if len(found.Items) == 0 && template == nil {
		released, err := s.diskSession().ReleaseAll(vmCID)
		if err == nil && !released {
			return call.NoVM(vmCID)
		}
		return err
	}
	s.setDeleteSubject(found.Items, template)
	s.waitForKilledAttachments(selection, found)
	deletion := vmDeletion{session: s, template: template, requested: map[types.UID]bool{}}
	remaining := found.Items
	err = s.WaitForPods(s.WatchNode(kube.NodeOf(found.Items)), selection, &found, func(present []*corev1.Pod) (bool, error) {
		remaining = present
		return len(present) == 0, deletion.deleteNext(present)
	})
	if len(remaining) == 0 {
		if err == nil {
			_, err = s.diskSession().ReleaseAll(vmCID)
		}
		return err
	}
	stuck := remaining[0]
	return s.ExplainTimeout(stuck, err, "Pod "+stuck.Name+" does not end on node "+stuck.Spec.NodeName)
}

// containerRestartTimeout is how long an attachment that was killed may take to run again: kubelets start a container after 10, 20 and
// 40 seconds.
const containerRestartTimeout = time.Minute

// waitForKilledAttachments waits until attachments that were killed run again. One that does not run when it is deleted leaves its
// loop device, or its mount, on the node, and no other node could have the volume then.
func (s *Session) waitForKilledAttachments(selection kube.Selection, found kube.ObjectList[*corev1.Pod]) {
	if !slices.ContainsFunc(found.Items, isKilledAttachment) {
		return
	}
	bounded, cancel := s.withTimeout(containerRestartTimeout)
	defer cancel()
	err := bounded.WaitForPods(s.WatchNode(kube.NodeOf(found.Items)), selection, &found, func(present []*corev1.Pod) (bool, error) {
		return !slices.ContainsFunc(present, isKilledAttachment), nil
	})
	if err != nil {
		s.Log.Warn("an attachment of the VM was killed and does not run again: its volume may stay with the node", "error", err)
	}
}

// isKilledAttachment reports that the attachment's program was killed, and is to be started again.
func isKilledAttachment(pod *corev1.Pod) bool {
	status := manifest.OwnContainerStatus(pod)
	terminated := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
	return pod.Labels[manifest.LabelRole] == manifest.RoleAttachment && pod.DeletionTimestamp == nil && !kube.Finished(pod) &&
		status.State.Running == nil && terminated != nil && kube.Aborted(terminated)
}

// setDeleteSubject says that the call is about the machine's Pod, or about what is there of a machine without one.
func (s *Session) setDeleteSubject(pods []*corev1.Pod, template *corev1.PodTemplate) {
	switch vmPods := call.VMPods(pods); {
	case len(vmPods) > 0:
		s.SetSubject(s.Pods.Reference(vmPods[0]))
	case template != nil:
		s.SetSubject(s.PodTemplates.Reference(template))
	default:
		s.SetSubject(call.OwnerOf(pods[0]))
	}
}

// vmDeletion asks for the end of a machine's objects, of each once.
type vmDeletion struct {
	session   *Session
	template  *corev1.PodTemplate // what the machine's Pod would be made from again, or nil
	requested map[types.UID]bool
}

// deleteNext asks for the end of the machine's Pod, and once that is gone of what it was made from and of the
// attachments: only a machine that is gone uses no disk.
func (d *vmDeletion) deleteNext(present []*corev1.Pod) error {
	if vmPods := call.VMPods(present); len(vmPods) > 0 {
		return d.deletePods(vmPods)
	}
	if err := d.deleteTemplate(); err != nil {
		return err
	}
	return d.deletePods(present)
}

func (d *vmDeletion) deletePods(pods []*corev1.Pod) error {
	s := d.session
	for _, pod := range pods {
		if d.requested[pod.UID] {
			continue
		}
		d.requested[pod.UID] = true
		if err := s.Pods.Delete(s.Ctx, pod); err != nil {
			return err
		}
		if err := s.UpdatePDBAfterDelete(pod); err != nil {
			return err
		}
	}
	return nil
}

func (d *vmDeletion) deleteTemplate() error {
	s := d.session
	if d.template == nil || d.requested[d.template.UID] {
		return nil
	}
	d.requested[d.template.UID] = true
	if err := s.PodTemplates.Delete(s.Ctx, d.template); err != nil {
		return err
	}
	return s.UpdatePDBAfterDelete(manifest.PodFromTemplate(d.template, ""))
}

// findTemplate returns what the machine's Pod would be made from again, of a machine without a Pod too; nil when
// there is no such thing.
func (s *Session) findTemplate(vmCID string, pods []*corev1.Pod) (*corev1.PodTemplate, error) {
	if vmPods := call.VMPods(pods); len(vmPods) > 0 {
		return s.strategyForPod(vmPods[0]).templateOf(vmPods[0]), nil
	}
	template, err := s.GetPodTemplate(vmCID)
	if call.VMNotFound.Is(err) {
		return nil, nil
	}
	return template, err
}

// removeVM deletes a machine's Pod, waits until its node has stopped it, and removes its Secret, and what the
// Pod would be made from again, without waiting for the garbage collector. No disk is attached to it yet.
func (s *Session) removeVM(pod *corev1.Pod) error {
	if template := s.strategyForPod(pod).templateOf(pod); template != nil { // before its Pod, or another call would make that again
		if err := s.PodTemplates.Delete(s.Ctx, template); err != nil {
			return err
		}
	}
	if err := s.DeletePodAndWait(pod); err != nil {
		return err
	}
	return s.removeTemplateAndSecret(pod)
}

// removeTemplateAndSecret removes what is left of a machine whose Pod is gone, or was never up.
func (s *Session) removeTemplateAndSecret(pod *corev1.Pod) error {
	if template := s.strategyForPod(pod).templateOf(pod); template != nil {
		if err := s.PodTemplates.Delete(s.Ctx, template); err != nil {
			return err
		}
	}
	secret, err := s.Secrets.Get(s.Ctx, pod.Name)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if kube.OwnedBy(secret, manifest.OwnerReference(pod).UID) {
		return s.Secrets.Delete(s.Ctx, secret)
	}
	return nil
}

package vm

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Delete deletes the VM Pod first, so that nothing uses its disks. Then it deletes the attachment Pods and releases the disks. It
// does not delete the disks. The garbage collector of Kubernetes deletes the Secret.
//
// If another client deleted the PVC of a disk, Delete fails before it changes anything, because Kubernetes would delete the data.
//
// If the node is lost, Delete requests the deletion of the Pod, and fails. Kubernetes removes the Pod when the node is back, or when
// the operator marks it as out of service.
func (s *Session) Delete(vmCID string) error {
	found, selection, err := s.ListVMPods(vmCID)
	if err != nil {
		return err
	}
	template, err := s.findTemplate(vmCID, manifest.VMPods(found.Items))
	if err != nil {
		return err
	}
	if len(found.Items) == 0 && template == nil {
		released, err := s.diskSession().ReleaseAll(vmCID)
		if err == nil && !released {
			return call.VMNotFoundError(vmCID)
		}
		return err
	}
	s.setDeleteSubject(manifest.VMPods(found.Items), template, manifest.AttachmentPods(found.Items))
	if template != nil || len(manifest.AttachmentPods(found.Items)) > 0 {
		if err := s.diskSession().CheckNoneBeingDeleted(vmCID); err != nil {
			return err
		}
	}
	s.waitForKilledAttachments(selection, found)
	deletion := vmDeletion{session: s, template: template, requested: map[types.UID]bool{}}
	remaining := found.Items
	err = s.WaitForPods(s.WatchNode(kube.NodeOf(found.Items)), selection, &found, func(present []*corev1.Pod) (bool, error) {
		remaining = present
		return len(present) == 0, deletion.deleteNext(present)
	})
	if len(remaining) == 0 {
		if err != nil {
			return err
		}
		if _, err := s.diskSession().ReleaseAll(vmCID); err != nil {
			return err
		}
		return deletion.preventAssignments()
	}
	stuck := remaining[0]
	return s.ExplainTimeout(call.CodeVMDeleteTimeout, stuck, err, "timed out deleting Pod "+stuck.Name+" on node "+stuck.Spec.NodeName)
}

// containerRestartTimeout limits the wait for the restart of a killed attachment container: the kubelet restarts a container after 10,
// 20 and 40 seconds.
const containerRestartTimeout = time.Minute

// waitForKilledAttachments waits until killed attachment containers run again. An attachment Pod that is deleted while its container is
// not running leaves its loop device or its mount on the node, and no other node can attach the volume.
func (s *Session) waitForKilledAttachments(selection kube.Selection, found kube.ObjectList[*corev1.Pod]) {
	isKilled := func(attachment manifest.AttachmentPod) bool {
		state := disk.StateOf(attachment)
		return state == disk.AttachmentKilled || state == disk.AttachmentUnready
	}
	if !slices.ContainsFunc(manifest.AttachmentPods(found.Items), isKilled) {
		return
	}
	bounded, cancel := s.WithTimeout(containerRestartTimeout)
	defer cancel()
	err := bounded.WaitForPods(s.WatchNode(kube.NodeOf(found.Items)), selection, &found, func(present []*corev1.Pod) (bool, error) {
		return !slices.ContainsFunc(manifest.AttachmentPods(present), isKilled), nil
	})
	if err != nil {
		s.Log.Warn("an attachment Pod of the VM was killed and does not restart; its volume may stay attached to the node", "error", err)
	}
}

// setDeleteSubject sets the subject of the call: the VM Pod, the PodTemplate, or the owner of an attachment Pod, whichever exists.
func (s *Session) setDeleteSubject(vmPods []manifest.VMPod, template *corev1.PodTemplate, attachments []manifest.AttachmentPod) {
	switch {
	case len(vmPods) > 0:
		s.SetSubject(s.Pods.Reference(vmPods[0].Pod))
	case template != nil:
		s.SetSubject(s.PodTemplates.Reference(template))
	case len(attachments) > 0:
		s.SetSubject(attachments[0].OwnerReference())
	}
}

// vmDeletion deletes the objects of a VM. It requests the deletion of each object once.
type vmDeletion struct {
	session   *Session
	template  *corev1.PodTemplate // template of a VM with disk_strategy: recreate, else nil
	vmPod     manifest.VMPod      // the deleted Pod of such a VM, or the zero value if it was missing
	requested map[types.UID]bool
	gated     []manifest.AttachmentPod // deleted before they started
}

// deleteNext deletes the VM Pod, and when it is gone, the PodTemplate and the attachment Pods: the VM may use its disks until its
// Pod is gone.
func (d *vmDeletion) deleteNext(present []*corev1.Pod) error {
	s := d.session
	if vmPods := manifest.VMPods(present); len(vmPods) > 0 {
		if !d.isFirstRequest(vmPods[0]) {
			return nil
		}
		if err := s.requestPodDeletion(vmPods[0]); err != nil {
			return err
		}
		if d.template != nil { // the group has the VM until its PodTemplate is deleted
			d.vmPod = vmPods[0]
			return nil
		}
		return s.UpdatePDBAfterDelete(vmPods[0])
	}
	if d.template != nil && d.isFirstRequest(d.template) {
		if err := s.PodTemplates.Delete(s.Ctx, d.template); err != nil {
			return err
		}
		if d.vmPod.Pod == nil {
			d.vmPod = manifest.PodFromTemplate(d.template, "")
		}
		if err := s.UpdatePDBAfterDelete(d.vmPod); err != nil {
			return err
		}
	}
	for _, pod := range present {
		if d.isFirstRequest(pod) {
			if attachment := (manifest.AttachmentPod{Pod: pod}); attachment.IsGated() {
				d.gated = append(d.gated, attachment)
			}
			if err := s.Pods.Delete(s.Ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// preventAssignments keeps interrupted attach_disk calls from recording the VM as the owner of their disks later.
func (d *vmDeletion) preventAssignments() error {
	for _, attachment := range d.gated {
		if _, err := d.session.diskSession().ReleaseCanceled(attachment.Disk(), attachment.OwnerRecord()); err != nil {
			return err
		}
	}
	return nil
}

// isFirstRequest reports whether the deletion of the object was not requested before.
func (d *vmDeletion) isFirstRequest(object metav1.Object) bool {
	requested := d.requested[object.GetUID()]
	d.requested[object.GetUID()] = true
	return !requested
}

// findTemplate returns the PodTemplate of a VM with disk_strategy: recreate, even if the VM has no Pod, and nil for any other VM.
func (s *Session) findTemplate(vmCID string, vmPods []manifest.VMPod) (*corev1.PodTemplate, error) {
	if len(vmPods) > 0 {
		return vmPods[0].Template(), nil
	}
	template, err := s.GetPodTemplate(vmCID)
	if call.VMNotFound.Is(err) {
		return nil, nil
	}
	return template, err
}

// deleteVMAndWait deletes the PodTemplate and the Pod of a VM, and waits until the node stops the Pod. It then deletes the Secret without
// waiting for the garbage collector. It requires that no disk is attached to the VM.
func (s *Session) deleteVMAndWait(pod manifest.VMPod) error {
	if template := pod.Template(); template != nil { // before the Pod, which another call would recreate from it
		if err := s.PodTemplates.Delete(s.Ctx, template); err != nil {
			return err
		}
	}
	if err := s.deletePodAndWait(pod); err != nil {
		return err
	}
	return s.removeSecret(pod)
}

// requestPodDeletion requests the deletion of the VM Pod. Drain scripts do not run: the director has run them, unless the agent does not
// respond.
func (s *Session) requestPodDeletion(vmPod manifest.VMPod) error {
	var gracePeriod *int64
	if own := vmPod.Spec.TerminationGracePeriodSeconds; own != nil && *own > manifest.ShutdownSeconds {
		gracePeriod = new(int64(manifest.ShutdownSeconds))
	}
	return s.Pods.DeleteWithGracePeriod(s.Ctx, vmPod.Pod, gracePeriod)
}

// deletePodAndWait deletes exactly this VM Pod, by UID, and waits until its node stops it.
func (s *Session) deletePodAndWait(vmPod manifest.VMPod) error {
	if err := s.requestPodDeletion(vmPod); err != nil {
		return err
	}
	return s.WaitForDeletion(vmPod.Pod)
}

// removeSecret deletes the Secret of a VM after its Pod.
func (s *Session) removeSecret(pod manifest.VMPod) error {
	secret, err := s.Secrets.Get(s.Ctx, pod.Name)
	if err != nil || !kube.IsOwnedBy(secret, pod.OwnerReference().UID) {
		return kube.IgnoreNotFound(err)
	}
	return s.Secrets.Delete(s.Ctx, secret)
}

package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// copyDisk makes a successor of the disk, with its data, and proves the copy. The disk itself stays as it
// is until the director has named the successor, so that it is there whatever becomes of this call's
// answer; see SettleCopy.
//
// Each step finds what an earlier call has done: the disk's PVC names its successor, the successor's PVC shows whether its
// data is proven, and the Pod between them goes on without the call. A repeated call adopts all of it.
func (s *Session) copyDisk(pvc *corev1.PersistentVolumeClaim, desired manifest.Disk) error {
	if err := s.checkCopyable(pvc, desired); err != nil {
		return err
	}
	pvc, err := s.beginCopy(pvc, desired.Name)
	if err != nil {
		return err
	}
	successor, err := s.ensureSuccessor(pvc, desired)
	if err == nil {
		err = s.copyData(pvc, successor)
	}
	if err != nil {
		return errors.Join(err, s.rollbackCopy(pvc, desired.Name))
	}
	return nil
}

// beginCopy names the successor on the disk's PVC. A copy to another one is abandoned.
func (s *Session) beginCopy(pvc *corev1.PersistentVolumeClaim, successor string) (*corev1.PersistentVolumeClaim, error) {
	for pvc.Annotations[manifest.AnnotationCopiedTo] != successor {
		abandoned, err := s.abandonCopy(pvc)
		if err != nil {
			return pvc, err
		}
		pvc = abandoned
		if err := s.CheckFreeFor(pvc, ""); err != nil {
			return pvc, err
		}
		patch, err := manifest.BeginCopy(pvc, successor)
		if err != nil {
			return pvc, err
		}
		patched, err := s.PVCs.Patch(s.Ctx, pvc.Name, patch)
		if err == nil {
			return patched, nil
		}
		if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) {
			return pvc, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
	}
	return pvc, nil
}

// rollbackCopy removes what this call has made, or adopted, of a copy that failed. What a repeated call has adopted
// since stays, and so does a copy that is proven: another call has answered with it.
func (s *Session) rollbackCopy(pvc *corev1.PersistentVolumeClaim, successor string) error {
	cleanup, cancel := s.cleanupSession()
	defer cancel()
	if gone, err := cleanup.deleteCopyPodIfOwned(pvc.Name); !gone || err != nil {
		return err
	}
	for {
		existing, err := cleanup.GetPVC(successor)
		switch {
		case call.DiskNotFound.Is(err): // it was never made, or another call has removed it
		case err != nil:
			return err
		case !cleanup.Owns(existing) || existing.Labels[manifest.LabelCopy] != manifest.CopyIncomplete:
			return nil
		default:
			err = cleanup.PVCs.DeleteUnchanged(cleanup.Ctx, existing)
			if errors.Is(err, kube.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
		}
		return cleanup.clearDeletedSuccessor(pvc.Name, successor)
	}
}

// deleteCopyPodIfOwned ends the Pod of the disk's copy if it is this call's, and reports that there is none any more.
func (s *Session) deleteCopyPodIfOwned(disk string) (gone bool, err error) {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	if err != nil || !IsCopyPod(pod) {
		return false, err
	}
	return s.DeletePodIfOwned(pod, call.NeverKeep)
}

// clearDeletedSuccessor removes the name of a successor that is gone from the disk's PVC.
func (s *Session) clearDeletedSuccessor(disk, successor string) error {
	for {
		pvc, err := s.GetPVC(disk)
		if call.DiskNotFound.Is(err) {
			return nil
		}
		if err != nil || pvc.Annotations[manifest.AnnotationCopiedTo] != successor {
			return err
		}
		if owner, ok := manifest.DiskOwnerOf(pvc); !ok || owner.VM != "" {
			return nil
		}
		if _, err = s.clearCopyRecord(pvc); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// checkCopyable refuses, before anything is changed, a disk that is attached or cannot be read, and a class that does not
// exist.
func (s *Session) checkCopyable(pvc *corev1.PersistentVolumeClaim, desired manifest.Disk) error {
	existing, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(pvc.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if err := s.CheckFreeFor(pvc, ""); err != nil {
			return err
		}
	case err != nil:
		return err
	case IsCopyPod(existing) && (existing.Annotations[manifest.AnnotationCopiedTo] == desired.Name || !copyRunning(existing)):
	case IsCopyPod(existing):
		return CopyingError(existing)
	case existing.DeletionTimestamp != nil:
		return call.CloudError.Errorf("disk %s is still being released in VM %s", pvc.Name, existing.Labels[manifest.LabelVM])
	default:
		if err := s.checkUnattached(pvc); err != nil {
			return err
		}
	}
	if err := checkReadable(pvc); err != nil {
		return err
	}
	if desired.StorageClass == nil {
		return nil
	}
	storageClasses, err := s.StorageClasses()
	if err != nil {
		return err
	}
	_, err = storageClasses.Get(s.Ctx, *desired.StorageClass)
	if errors.Is(err, kube.ErrNotFound) {
		return call.Invalid("cloud_properties.storage_class: the cluster has no StorageClass %s", *desired.StorageClass)
	}
	return err
}

// ensureSuccessor creates the successor's PVC, or adopts it. It has the disk's own class when no other is asked for.
func (s *Session) ensureSuccessor(pvc *corev1.PersistentVolumeClaim, desired manifest.Disk) (*corev1.PersistentVolumeClaim, error) {
	desired.Namespace = s.Namespace
	desired.Snapshot = "" // its content is the disk's
	desired.StorageClass = cmp.Or(desired.StorageClass, pvc.Spec.StorageClassName)
	adoptIf := func(existing *corev1.PersistentVolumeClaim) (bool, error) {
		switch {
		case existing.Annotations[manifest.AnnotationCopyOf] != pvc.Name:
			return false, call.CloudError.Errorf("PVC %s exists, and is not a copy of disk %s", desired.Name, pvc.Name)
		case existing.DeletionTimestamp != nil:
			return false, s.PVCs.WaitDeleted(s.Ctx, existing)
		}
		return true, nil
	}
	successor, _, err := call.EnsureOwned(s.Call, s.PVCs, desired.Successor(pvc), call.AdoptIf(adoptIf))
	return successor, err
}

// checkReadable refuses a disk that has a volume, and data in it, that cannot be had now: it is no empty disk.
func checkReadable(pvc *corev1.PersistentVolumeClaim) error {
	if kube.Bound(pvc) || kube.Binding(pvc) || kube.NeverBound(pvc) {
		return nil
	}
	return call.CloudError.Errorf("disk %s cannot be read, nothing was copied: its claim is %s although it has the volume %s. "+
		"Bring that volume back (kubectl describe pvc %s)", pvc.Name, pvc.Status.Phase, pvc.Spec.VolumeName, pvc.Name)
}

// copyData copies the data and marks the successor as proven, unless it is. A disk that never had a volume has no data.
func (s *Session) copyData(pvc, successor *corev1.PersistentVolumeClaim) error {
	if successor.Labels[manifest.LabelCopy] != manifest.CopyIncomplete {
		return s.deleteCopyPod(pvc.Name)
	}
	if kube.NeverBound(pvc) {
		return s.markVerified(pvc, successor)
	}
	pod, err := s.runCopyPod(pvc, successor)
	if err != nil {
		return err
	}
	if err := s.markVerified(pvc, successor); err != nil {
		return err
	}
	if err := s.deleteCopyPod(pvc.Name); err != nil {
		return err
	}
	return s.releaseFromCopy(pvc.Name, successor, pod)
}

// runCopyPod runs the Pod that copies the data, as the owner of the disk, until it has succeeded.
func (s *Session) runCopyPod(pvc, successor *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	vmPod, own, err := s.findVMForCopy(pvc)
	if err != nil {
		return nil, err
	}
	desired := manifest.Copy{Old: pvc, New: successor, VM: vmPod, Director: s.Director}
	if own {
		desired.Node = vmPod.Spec.NodeName
	}
	pod, err := s.ensureCopyPod(desired.Pod())
	if err != nil {
		return nil, err
	}
	_, err = s.assignOwner(pvc, manifest.DiskOwner{Pod: pod.UID},
		func(current *corev1.PersistentVolumeClaim) error { return s.checkCopyAllowed(current, successor.Name) },
		func(current *corev1.PersistentVolumeClaim) ([]byte, error) {
			return manifest.AssignCopy(current, successor.Name, pod.UID)
		})
	if err != nil {
		return nil, err
	}
	if pod, err = s.startPod(pod); err != nil {
		return nil, err
	}
	return pod, s.waitForCopy(pod)
}

// checkCopyAllowed refuses a disk that has become a VM's, or is copied to another successor, since the copy was begun.
func (s *Session) checkCopyAllowed(pvc *corev1.PersistentVolumeClaim, successor string) error {
	if to := pvc.Annotations[manifest.AnnotationCopiedTo]; to != "" && to != successor {
		return call.InUse(call.CloudError.Errorf("disk %s is being copied to disk %s by another update_disk", pvc.Name, to))
	}
	return s.CheckFreeFor(pvc, "")
}

// markVerified marks the successor as proven, if it is the one that was filled.
func (s *Session) markVerified(pvc, successor *corev1.PersistentVolumeClaim) error {
	_, err := s.advanceCopy(successor, manifest.CopyIncomplete, manifest.CopyVerified)
	if !errors.Is(err, kube.ErrConflict) && !call.DiskNotFound.Is(err) {
		return err
	}
	current, err := s.PVCs.Get(s.Ctx, successor.Name)
	switch {
	case err == nil && current.UID == successor.UID && current.Labels[manifest.LabelCopy] != manifest.CopyIncomplete:
		return nil // by this request, the answer to which was lost, or by a repeated call
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return err
	}
	return s.supersededCopyError(pvc.Name)
}

// releaseFromCopy makes the disk free. That its copy was its owner until then shows that nobody has written to it meanwhile.
func (s *Session) releaseFromCopy(disk string, successor *corev1.PersistentVolumeClaim, pod *corev1.Pod) error {
	patch, err := manifest.ReleaseDisk(manifest.DiskOwner{Pod: pod.UID})
	if err != nil {
		return err
	}
	_, err = s.PVCs.PatchJSON(s.Ctx, disk, patch)
	if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	// The answer to this request was lost, or a repeated call has released the disk; unless another call has abandoned the copy.
	current, err := s.GetPVC(successor.Name)
	if call.DiskNotFound.Is(err) || err == nil && current.UID != successor.UID {
		return s.supersededCopyError(disk)
	}
	return err
}

func (s *Session) supersededCopyError(disk string) error {
	return call.CloudError.Errorf("the copy of disk %s was ended by someone else", disk)
}

// findVMForCopy returns a VM whose image has what the copy needs: the one of the disk's own instance, or
// else any other. own tells that it is the former: what is copied has to be where that one can reach it.
func (s *Session) findVMForCopy(pvc *corev1.PersistentVolumeClaim) (vmPod *corev1.Pod, own bool, err error) {
	selection := kube.Selection{Labels: manifest.DirectorSelector(s.Director) + "," + manifest.LabelRole + "=" + manifest.RoleVM}
	instance := pvc.Annotations[manifest.AnnotationInstanceID] // as set_disk_metadata has it
	found, ok, err := s.Pods.Find(s.Ctx, selection, func(pod *corev1.Pod) bool {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return false
		}
		vmPod = cmp.Or(vmPod, pod)
		return instance == "" || pod.Annotations[manifest.AnnotationInstance] == instance
	})
	switch {
	case err != nil:
		return nil, false, err
	case ok:
		return found, instance != "", nil
	case vmPod == nil:
		return nil, false, call.NotSupported.Errorf("disk %s has to be copied, and no VM runs from whose image that could be done", pvc.Name)
	}
	return vmPod, false, nil
}

// ensureCopyPod creates the Pod, or adopts the one that an earlier call has made. One that failed is replaced.
func (s *Session) ensureCopyPod(desired *corev1.Pod) (*corev1.Pod, error) {
	pod, _, err := s.EnsureHelperPod(desired, func(existing *corev1.Pod) (bool, error) {
		switch {
		case existing.DeletionTimestamp != nil:
			return false, s.WaitForDeletion(existing)
		case !IsCopyPod(existing):
			if superseded, err := s.DeleteSuperseded(existing); superseded || err != nil {
				return false, err
			}
			return false, AttachedError(existing)
		case copyFailed(existing) || !slices.Equal(existing.OwnerReferences, desired.OwnerReferences):
			return false, s.DeletePodAndWait(existing)
		}
		return true, nil
	})
	return pod, err
}

func copyFailed(pod *corev1.Pod) bool {
	finished, succeeded := manifest.Outcome(pod)
	return finished && !succeeded
}

// waitForCopy waits until the copy has ended well. It has to start as soon as an attachment would.
func (s *Session) waitForCopy(pod *corev1.Pod) error {
	disk := pod.Labels[manifest.LabelDisk]
	wait := func(ctx context.Context, enough func(*corev1.Pod) bool) error {
		return s.Pods.Wait(ctx, kube.Selection{Name: pod.Name}, kube.ListOf(pod), func(present []*corev1.Pod) (bool, error) {
			if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
				return false, s.supersededCopyError(disk)
			}
			*pod = *present[0]
			finished, succeeded := manifest.Outcome(pod)
			if finished && !succeeded {
				return false, copyFailedError(pod)
			}
			return finished || enough(pod), nil
		})
	}
	starting, cancel := context.WithTimeout(s.Ctx, s.StartTimeout)
	defer cancel()
	if err := wait(starting, func(pod *corev1.Pod) bool { return kube.HasRun(manifest.OwnContainerStatus(pod)) }); err != nil {
		return s.ExplainTimeout(pod, err, "the copy of disk "+disk+" did not start")
	}
	err := wait(s.Ctx, func(*corev1.Pod) bool { return false })
	return s.ExplainTimeout(pod, err, "disk "+disk+" was not copied in time (timeouts.update_disk)")
}

func copyFailedError(pod *corev1.Pod) error {
	kind, reason := call.CloudError, cmp.Or(pod.Status.Message, pod.Status.Reason)
	if terminated := manifest.OwnContainerStatus(pod).State.Terminated; terminated != nil {
		reason = cmp.Or(
			strings.TrimSpace(terminated.Message),
			fmt.Sprintf("it ended with status %d (%s)", terminated.ExitCode, terminated.Reason),
		)
		if terminated.ExitCode == manifest.ExitNoSpace {
			kind = call.NoDiskSpace
		}
	}
	return kind.Errorf("the copy failed, and disk %s is as it was: %s", pod.Labels[manifest.LabelDisk], reason)
}

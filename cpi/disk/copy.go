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
func (s *Session) copyDisk(pvc *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	if err := s.copyable(pvc, wanted); err != nil {
		return err
	}
	pvc, err := s.beginCopy(pvc, wanted.Name)
	if err != nil {
		return err
	}
	successor, err := s.ensureSuccessor(pvc, wanted)
	if err == nil {
		err = s.fill(pvc, successor)
	}
	if err != nil {
		return errors.Join(err, s.undoOwnCopy(pvc, wanted.Name))
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
		if err := s.FreeFor(pvc, ""); err != nil {
			return pvc, err
		}
		patch, err := manifest.BeginCopy(pvc, successor)
		if err != nil {
			return pvc, err
		}
		begun, err := s.Claims.Patch(s.Ctx, pvc.Name, patch)
		if err == nil {
			return begun, nil
		}
		if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) {
			return pvc, err
		}
		if pvc, err = s.Claim(pvc.Name); err != nil {
			return pvc, err
		}
	}
	return pvc, nil
}

// undoOwnCopy removes what this call has made, or adopted, of a copy that failed. What a repeated call has adopted
// since stays, and so does a copy that is proven: another call has answered with it.
func (s *Session) undoOwnCopy(pvc *corev1.PersistentVolumeClaim, successor string) error {
	undo, cancel := s.detached()
	defer cancel()
	if gone, err := undo.endOwnCopy(pvc.Name); !gone || err != nil {
		return err
	}
	for {
		found, err := undo.Claim(successor)
		switch {
		case call.DiskNotFound.In(err): // it was never made, or another call has removed it
		case err != nil:
			return err
		case !undo.Owns(found) || found.Labels[manifest.LabelCopy] != manifest.CopyUnproven:
			return nil
		default:
			err = undo.Claims.DeleteUnchanged(undo.Ctx, found)
			if errors.Is(err, kube.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
		}
		return undo.unmarkOwn(pvc.Name, successor)
	}
}

// endOwnCopy ends the Pod of the disk's copy if it is this call's, and reports that there is none any more.
func (s *Session) endOwnCopy(disk string) (gone bool, err error) {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	if err != nil || !IsCopy(pod) {
		return false, err
	}
	return s.EndOwn(pod, call.Never)
}

// unmarkOwn removes the name of a successor that is gone from the disk's PVC.
func (s *Session) unmarkOwn(disk, successor string) error {
	for {
		pvc, err := s.Claim(disk)
		if call.DiskNotFound.In(err) {
			return nil
		}
		if err != nil || pvc.Annotations[manifest.AnnotationCopiedTo] != successor {
			return err
		}
		if owner, ok := manifest.DiskOwnerOf(pvc); !ok || owner.VM != "" {
			return nil
		}
		if _, err = s.unmark(pvc); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// copyable refuses, before anything is changed, a disk that is attached or cannot be read, and a class that does not
// exist.
func (s *Session) copyable(claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	holder, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(claim.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if err := s.FreeFor(claim, ""); err != nil {
			return err
		}
	case err != nil:
		return err
	case IsCopy(holder) && (holder.Annotations[manifest.AnnotationCopiedTo] == wanted.Name || !copyRuns(holder)):
	case IsCopy(holder):
		return CopyingError(holder)
	case holder.DeletionTimestamp != nil:
		return call.CloudError.Errorf("disk %s is still being released in VM %s", claim.Name, holder.Labels[manifest.LabelVM])
	default:
		if err := s.unattached(claim); err != nil {
			return err
		}
	}
	if err := readable(claim); err != nil {
		return err
	}
	if wanted.StorageClass == nil {
		return nil
	}
	classes, err := s.StorageClasses()
	if err != nil {
		return err
	}
	_, err = classes.Get(s.Ctx, *wanted.StorageClass)
	if errors.Is(err, kube.ErrNotFound) {
		return call.Invalid("cloud_properties.storage_class: the cluster has no StorageClass %s", *wanted.StorageClass)
	}
	return err
}

// ensureSuccessor creates the successor's PVC, or adopts it. It has the disk's own class when no other is asked for.
func (s *Session) ensureSuccessor(pvc *corev1.PersistentVolumeClaim, wanted manifest.Disk) (*corev1.PersistentVolumeClaim, error) {
	wanted.Namespace = s.Namespace
	wanted.Snapshot = "" // its content is the disk's
	wanted.StorageClass = cmp.Or(wanted.StorageClass, pvc.Spec.StorageClassName)
	judge := func(existing *corev1.PersistentVolumeClaim) (bool, error) {
		switch {
		case existing.Annotations[manifest.AnnotationCopyOf] != pvc.Name:
			return false, call.CloudError.Errorf("PVC %s exists, and is not a copy of disk %s", wanted.Name, pvc.Name)
		case existing.DeletionTimestamp != nil:
			return false, s.Claims.AwaitGone(s.Ctx, existing)
		}
		return true, nil
	}
	successor, _, err := call.EnsureOwned(s.Call, s.Claims, wanted.Successor(pvc), call.Adopted(judge))
	return successor, err
}

// readable refuses a disk that has a volume, and data in it, that cannot be had now: it is no empty disk.
func readable(claim *corev1.PersistentVolumeClaim) error {
	if kube.Bound(claim) || kube.Binding(claim) || kube.NeverBound(claim) {
		return nil
	}
	return call.CloudError.Errorf("disk %s cannot be read, nothing was copied: its claim is %s although it has the volume %s. "+
		"Bring that volume back (kubectl describe pvc %s)", claim.Name, claim.Status.Phase, claim.Spec.VolumeName, claim.Name)
}

// fill copies the data and marks the successor as proven, unless it is. A disk that never had a volume has no data.
func (s *Session) fill(pvc, successor *corev1.PersistentVolumeClaim) error {
	if successor.Labels[manifest.LabelCopy] != manifest.CopyUnproven {
		return s.endCopy(pvc.Name)
	}
	if kube.NeverBound(pvc) {
		return s.prove(pvc, successor)
	}
	pod, err := s.runCopy(pvc, successor)
	if err != nil {
		return err
	}
	if err := s.prove(pvc, successor); err != nil {
		return err
	}
	if err := s.endCopy(pvc.Name); err != nil {
		return err
	}
	return s.releaseCopy(pvc.Name, successor, pod)
}

// runCopy runs the Pod that copies the data, as the owner of the disk, until it has succeeded.
func (s *Session) runCopy(pvc, successor *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	machine, own, err := s.machineFor(pvc)
	if err != nil {
		return nil, err
	}
	wanted := manifest.Copy{Old: pvc, New: successor, Machine: machine, Director: s.Director}
	if own {
		wanted.Node = machine.Spec.NodeName
	}
	pod, err := s.ensureCopy(wanted.Pod())
	if err != nil {
		return nil, err
	}
	_, err = s.assign(pvc, manifest.DiskOwner{Pod: pod.UID},
		func(now *corev1.PersistentVolumeClaim) error { return s.copyPermitted(now, successor.Name) },
		func(now *corev1.PersistentVolumeClaim) ([]byte, error) {
			return manifest.AssignCopy(now, successor.Name, pod.UID)
		})
	if err != nil {
		return nil, err
	}
	if pod, err = s.start(pod); err != nil {
		return nil, err
	}
	return pod, s.awaitCopy(pod)
}

// copyPermitted refuses a disk that has become a VM's, or is copied to another successor, since the copy was begun.
func (s *Session) copyPermitted(pvc *corev1.PersistentVolumeClaim, successor string) error {
	if to := pvc.Annotations[manifest.AnnotationCopiedTo]; to != "" && to != successor {
		return call.InUse(call.CloudError.Errorf("disk %s is being copied to disk %s by another update_disk", pvc.Name, to))
	}
	return s.FreeFor(pvc, "")
}

// prove marks the successor as proven, if it is the one that was filled.
func (s *Session) prove(pvc, successor *corev1.PersistentVolumeClaim) error {
	_, err := s.advanceCopy(successor, manifest.CopyUnproven, manifest.CopyProven)
	if !errors.Is(err, kube.ErrConflict) && !call.DiskNotFound.In(err) {
		return err
	}
	now, err := s.Claims.Get(s.Ctx, successor.Name)
	switch {
	case err == nil && now.UID == successor.UID && now.Labels[manifest.LabelCopy] != manifest.CopyUnproven:
		return nil // by this request, the answer to which was lost, or by a repeated call
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return err
	}
	return s.supersededCopy(pvc.Name)
}

// releaseCopy makes the disk free. That its copy was its owner until then shows that nobody has written to it meanwhile.
func (s *Session) releaseCopy(disk string, successor *corev1.PersistentVolumeClaim, pod *corev1.Pod) error {
	patch, err := manifest.ReleaseDisk(manifest.DiskOwner{Pod: pod.UID})
	if err != nil {
		return err
	}
	_, err = s.Claims.PatchIf(s.Ctx, disk, patch)
	if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	// The answer to this request was lost, or a repeated call has released the disk; unless another call has abandoned the copy.
	now, err := s.Claim(successor.Name)
	if call.DiskNotFound.In(err) || err == nil && now.UID != successor.UID {
		return s.supersededCopy(disk)
	}
	return err
}

func (s *Session) supersededCopy(disk string) error {
	return call.CloudError.Errorf("the copy of disk %s was ended by someone else", disk)
}

// machineFor returns a VM whose image has what the copy needs: the one of the disk's own instance, or
// else any other. own tells that it is the former: what is copied has to be where that one can reach it.
func (s *Session) machineFor(claim *corev1.PersistentVolumeClaim) (machine *corev1.Pod, own bool, err error) {
	machines := kube.Selection{Labels: manifest.OfDirector(s.Director) + "," + manifest.LabelRole + "=" + manifest.RoleVM}
	instance := claim.Annotations[manifest.AnnotationInstanceID] // as set_disk_metadata has it
	found, ok, err := s.Pods.Find(s.Ctx, machines, func(pod *corev1.Pod) bool {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return false
		}
		machine = cmp.Or(machine, pod)
		return instance == "" || pod.Annotations[manifest.AnnotationInstance] == instance
	})
	switch {
	case err != nil:
		return nil, false, err
	case ok:
		return found, instance != "", nil
	case machine == nil:
		return nil, false, call.NotSupported.Errorf("disk %s has to be copied, and no VM runs from whose image that could be done", claim.Name)
	}
	return machine, false, nil
}

// ensureCopy creates the Pod, or adopts the one that an earlier call has made. One that failed is replaced.
func (s *Session) ensureCopy(wanted *corev1.Pod) (*corev1.Pod, error) {
	pod, _, err := s.EnsureHelper(wanted, func(left *corev1.Pod) (bool, error) {
		switch {
		case left.DeletionTimestamp != nil:
			return false, s.AwaitGone(left)
		case !IsCopy(left):
			if superseded, err := s.EndSuperseded(left); superseded || err != nil {
				return false, err
			}
			return false, AttachedError(left)
		case failed(left) || !slices.Equal(left.OwnerReferences, wanted.OwnerReferences):
			return false, s.End(left)
		}
		return true, nil
	})
	return pod, err
}

func failed(pod *corev1.Pod) bool {
	over, well := manifest.Outcome(pod)
	return over && !well
}

// awaitCopy waits until the copy has ended well. It has to start as soon as an attachment would.
func (s *Session) awaitCopy(pod *corev1.Pod) error {
	disk := pod.Labels[manifest.LabelDisk]
	await := func(ctx context.Context, enough func(*corev1.Pod) bool) error {
		return s.Pods.Await(ctx, kube.Selection{Name: pod.Name}, kube.At(pod), func(present []*corev1.Pod) (bool, error) {
			if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
				return false, s.supersededCopy(disk)
			}
			*pod = *present[0]
			over, well := manifest.Outcome(pod)
			if over && !well {
				return false, failedCopy(pod)
			}
			return over || enough(pod), nil
		})
	}
	starting, cancel := context.WithTimeout(s.Ctx, s.Start)
	defer cancel()
	if err := await(starting, func(pod *corev1.Pod) bool { return kube.HasRun(manifest.OwnStatus(pod)) }); err != nil {
		return s.ExplainTimeout(pod, err, "the copy of disk "+disk+" did not start")
	}
	err := await(s.Ctx, func(*corev1.Pod) bool { return false })
	return s.ExplainTimeout(pod, err, "disk "+disk+" was not copied in time (timeouts.update_disk)")
}

func failedCopy(pod *corev1.Pod) error {
	kind, why := call.CloudError, cmp.Or(pod.Status.Message, pod.Status.Reason)
	if ended := manifest.OwnStatus(pod).State.Terminated; ended != nil {
		why = cmp.Or(strings.TrimSpace(ended.Message), fmt.Sprintf("it ended with status %d (%s)", ended.ExitCode, ended.Reason))
		if ended.ExitCode == manifest.NoRoom {
			kind = call.NoDiskSpace
		}
	}
	return kind.Errorf("the copy failed, and disk %s is as it was: %s", pod.Labels[manifest.LabelDisk], why)
}

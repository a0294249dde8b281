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
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// copyDisk copies the disk to a successor and verifies the data. It keeps the old disk until the director uses the CID of the
// successor, because the response of this call may be lost: see ResolveCopy.
//
// A retried call resumes an interrupted copy: the PVC of the disk names the successor, the PVC of the successor shows whether the
// data is verified, and the copy Pod runs independently of the call. The retried call adopts all of them.
func (s *Session) copyDisk(pvc manifest.DiskPVC, desired manifest.Disk) error {
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

// beginCopy records the successor on the disk's PVC. It abandons a copy to another successor first.
func (s *Session) beginCopy(pvc manifest.DiskPVC, successor string) (manifest.DiskPVC, error) {
	for pvc.CopiedTo() != successor {
		abandoned, err := s.abandonCopy(pvc)
		if err != nil {
			return pvc, err
		}
		pvc = abandoned
		if err := s.CheckFreeFor(pvc, ""); err != nil {
			return pvc, err
		}
		patch, err := manifest.BeginCopyPatch(pvc, successor)
		if err != nil {
			return pvc, err
		}
		patched, err := s.patch(pvc.Name, patch)
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

// rollbackCopy deletes the objects of a failed copy that this call owns. It keeps objects that a retried call adopted, and a
// verified copy, because another call returned its CID.
func (s *Session) rollbackCopy(pvc manifest.DiskPVC, successor string) error {
	cleanup, cancel := s.cleanupSession()
	defer cancel()
	if gone, err := cleanup.deleteCopyPodIfOwned(pvc.Name); !gone || err != nil {
		return err
	}
	for {
		existing, err := cleanup.GetPVC(successor)
		switch {
		case call.DiskNotFound.Is(err): // never created, or deleted by another call
		case err != nil:
			return err
		case !cleanup.Owns(existing) || existing.CopyState() != manifest.CopyIncomplete:
			return nil
		default:
			err = cleanup.PVCs.DeleteUnchanged(cleanup.Ctx, existing.PVC)
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

// deleteCopyPodIfOwned deletes the disk's copy Pod if this call owns it. gone reports whether there is no copy Pod: any other Pod of
// its name shows that it was deleted.
func (s *Session) deleteCopyPodIfOwned(disk string) (gone bool, err error) {
	pod, err := s.getDiskPod(disk)
	if errors.Is(err, kube.ErrNotFound) || err == nil && !pod.IsCopy() {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return s.DeletePodIfOwned(pod.Pod, call.NeverKeep)
}

// clearDeletedSuccessor removes the record of a deleted successor from the disk's PVC, unless a VM has the disk.
func (s *Session) clearDeletedSuccessor(disk, successor string) error {
	for {
		pvc, err := s.GetPVC(disk)
		if call.DiskNotFound.Is(err) {
			return nil
		}
		if err != nil || pvc.CopiedTo() != successor {
			return err
		}
		if owner, ok := pvc.Owner(); !ok || owner.VM != "" {
			return nil
		}
		if _, err = s.clearCopyRecord(pvc); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// checkCopyable checks, before anything is changed, that the disk is not attached, that its data can be read, and that the
// requested StorageClass exists. It accepts a copy Pod that copies to the desired successor or is not running.
func (s *Session) checkCopyable(pvc manifest.DiskPVC, desired manifest.Disk) error {
	existing, err := s.getDiskPod(pvc.Name)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if err := s.CheckFreeFor(pvc, ""); err != nil {
			return err
		}
	case err != nil:
		return err
	case existing.IsCopy() && (manifest.CopyPod(existing).CopiedTo() == desired.Name || !isReading(manifest.CopyPod(existing))):
	case existing.IsCopy():
		return CopyingError(manifest.CopyPod(existing))
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
	_, err = s.StorageClasses().Get(s.Ctx, *desired.StorageClass)
	if errors.Is(err, kube.ErrNotFound) {
		return call.InvalidPropertyf("cloud_properties.storage_class: StorageClass %s not found; use an existing one", *desired.StorageClass)
	}
	return err
}

// ensureSuccessor creates or adopts the PVC of the successor. By default, it has the StorageClass of the disk.
func (s *Session) ensureSuccessor(pvc manifest.DiskPVC, desired manifest.Disk) (manifest.DiskPVC, error) {
	desired.Namespace = s.Namespace
	desired.Snapshot = "" // the content comes from the disk
	desired.StorageClass = cmp.Or(desired.StorageClass, pvc.Spec.StorageClassName)
	adoptIf := func(existing *corev1.PersistentVolumeClaim) (bool, error) {
		switch {
		case manifest.DiskPVC{PVC: existing}.CopyOf() != pvc.Name:
			return false, call.CodePVCExists.Errorf("PVC %s already exists and is not a copy of disk %s; "+
				"check that nothing uses this PVC, and delete the PVC", desired.Name, pvc.Name)
		case existing.DeletionTimestamp != nil:
			return false, s.PVCs.WaitDeleted(s.Ctx, existing)
		}
		return true, nil
	}
	successor, _, err := call.EnsureOwned(s.Call, s.PVCs, desired.Successor(pvc).PVC, call.AdoptIf(adoptIf))
	return manifest.DiskPVC{PVC: successor}, err
}

// checkReadable returns an error if the PVC had a volume but is no longer bound to it. Such a disk must not be copied as a blank one.
func checkReadable(pvc manifest.DiskPVC) error {
	if kube.HasVolume(pvc.PVC) || kube.NeverBound(pvc.PVC) {
		return nil
	}
	return call.CodeDiskVolumeLost.Errorf("cannot copy disk %s: its PVC is no longer bound to volume %s (phase %s); "+
		"restore the volume (see `kubectl describe pvc %s`)", pvc.Name, pvc.Spec.VolumeName, pvc.Status.Phase, pvc.Name)
}

// copyData copies the data to an incomplete successor, and marks it as verified. A disk that never had a volume has no data to
// copy.
func (s *Session) copyData(pvc, successor manifest.DiskPVC) error {
	if successor.CopyState() != manifest.CopyIncomplete {
		return s.deleteCopyPod(pvc.Name)
	}
	if kube.NeverBound(pvc.PVC) {
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

// runCopyPod makes a copy Pod the owner of the disk, and waits for it to succeed.
func (s *Session) runCopyPod(pvc, successor manifest.DiskPVC) (pod manifest.CopyPod, err error) {
	vmPod, sameInstance, err := s.findVMForCopy(pvc)
	if err != nil {
		return pod, err
	}
	unready, err := s.unreadyNodes()
	if err != nil {
		return pod, err
	}
	desired := manifest.Copy{Old: pvc, New: successor, VM: vmPod, Director: s.Director, Avoid: unready}
	if sameInstance && !slices.Contains(unready, vmPod.Spec.NodeName) {
		desired.Node = vmPod.Spec.NodeName
	}
	if pod, err = s.ensureCopyPod(desired); err != nil {
		return pod, err
	}
	_, err = s.assignOwner(pvc, manifest.DiskOwner{Pod: pod.UID},
		func(current manifest.DiskPVC) error { return s.checkCopyAllowed(current, successor.Name) },
		func(current manifest.DiskPVC) ([]byte, error) {
			return manifest.AssignCopyPatch(current, successor.Name, pod.UID)
		})
	if err != nil {
		return pod, err
	}
	started, err := s.startPod(manifest.DiskPod(pod))
	if err != nil {
		return pod, err
	}
	pod = manifest.CopyPod(started)
	return pod, s.waitForCopy(pod)
}

// unreadyNodes returns the nodes on which no Pod starts. The scheduler would choose them for a helper Pod, which tolerates all taints.
func (s *Session) unreadyNodes() ([]string, error) {
	nodes, err := s.Nodes.List(s.Ctx, kube.Selection{})
	if err != nil {
		return nil, err
	}
	var unready []string
	for _, node := range nodes.Items {
		if !kube.NodeReady(node) {
			unready = append(unready, node.Name)
		}
	}
	return unready, nil
}

// checkCopyAllowed returns an error if, since the copy began, a VM became the owner of the disk, or another call began to copy the
// disk to another successor.
func (s *Session) checkCopyAllowed(pvc manifest.DiskPVC, successor string) error {
	if other := pvc.CopiedTo(); other != "" && other != successor {
		return call.CodeDiskInUse.Errorf("disk %s is being copied to disk %s by another update_disk; retry when it has finished", pvc.Name, other)
	}
	return s.CheckFreeFor(pvc, "")
}

// markVerified marks exactly this successor, by UID, as verified.
func (s *Session) markVerified(pvc, successor manifest.DiskPVC) error {
	_, err := s.advanceCopy(successor, manifest.CopyIncomplete, manifest.CopyVerified)
	if !errors.Is(err, kube.ErrConflict) && !call.DiskNotFound.Is(err) {
		return err
	}
	current, err := s.read(successor.Name)
	switch {
	case err == nil && current.UID == successor.UID && current.CopyState() != manifest.CopyIncomplete:
		return nil // marked by this request, if its response was lost, or by a retried call
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return err
	}
	return s.supersededCopyError(pvc.Name)
}

// releaseFromCopy removes the copy Pod from the owner record of the disk. If the Pod still owned the disk, nothing else wrote to
// the disk during the copy.
func (s *Session) releaseFromCopy(disk string, successor manifest.DiskPVC, pod manifest.CopyPod) error {
	released, _, err := s.release(disk, manifest.DiskOwner{Pod: pod.UID})
	if released || err != nil {
		return err
	}
	// Either the response to an earlier attempt was lost, or a retried call released the disk, or another call abandoned the copy.
	// Only in the last case is the successor gone.
	current, err := s.GetPVC(successor.Name)
	if call.DiskNotFound.Is(err) || err == nil && current.UID != successor.UID {
		return s.supersededCopyError(disk)
	}
	return err
}

func (s *Session) supersededCopyError(disk string) error {
	return call.CodeHelperDeleted.Errorf("cannot copy disk %s: a concurrent call or another client deleted the copy; retry", disk)
}

// findVMForCopy returns a running VM that provides the image of the copy Pod: the VM of the disk's instance, or else any other VM.
// sameInstance reports whether it is the VM of the instance. The copy Pod then runs on that VM's node, because the VM must be able
// to use the volume of the successor.
func (s *Session) findVMForCopy(pvc manifest.DiskPVC) (vmPod manifest.VMPod, sameInstance bool, err error) {
	selection := kube.Selection{Labels: manifest.DirectorSelector(s.Director) + "," + manifest.LabelRole + "=" + manifest.RoleVM}
	instance := pvc.Instance() // set by set_disk_metadata
	_, found, err := s.Pods.Find(s.Ctx, selection, func(pod *corev1.Pod) bool {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return false
		}
		candidate := manifest.VMPod{Pod: pod}
		matches := instance == "" || candidate.Instance() == instance
		if matches || vmPod.Pod == nil {
			vmPod = candidate
		}
		return matches
	})
	if err == nil && vmPod.Pod == nil {
		err = call.CodeDiskCopyUnsupported.Errorf("cannot copy disk %s: no running VM provides an image for the helper Pod; "+
			"retry while a VM of this director is running", pvc.Name)
	}
	return vmPod, found && instance != "", err
}

// ensureCopyPod creates the copy Pod, or adopts the copy Pod of an earlier call. It replaces a Pod that failed or copies to another
// successor.
func (s *Session) ensureCopyPod(desired manifest.Copy) (manifest.CopyPod, error) {
	desiredPod := desired.Pod()
	pod, _, err := s.EnsureHelperPod(desiredPod.Pod, func(pod *corev1.Pod) (bool, error) {
		existing := manifest.DiskPod{Pod: pod}
		switch {
		case existing.DeletionTimestamp != nil:
			return false, s.WaitForRemoval(existing)
		case !existing.IsCopy():
			if superseded, err := s.DeleteSuperseded(existing); superseded || err != nil {
				return false, err
			}
			return false, s.AttachedError(manifest.AttachmentPod(existing))
		case manifest.CopyPod(existing).Failed() || !slices.Equal(existing.OwnerReferences, desiredPod.OwnerReferences):
			return false, s.DeletePodAndWait(pod)
		}
		return true, nil
	})
	return manifest.CopyPod{Pod: pod}, err
}

// waitForCopy waits for the copy Pod to succeed. The Pod must start within StartTimeout.
func (s *Session) waitForCopy(pod manifest.CopyPod) error {
	disk := pod.Disk()
	wait := func(ctx context.Context, done func(*corev1.Pod) bool) error {
		return s.Pods.Wait(ctx, kube.Selection{Name: pod.Name}, kube.ListOf(pod.Pod), func(present []*corev1.Pod) (bool, error) {
			if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
				return false, s.supersededCopyError(disk)
			}
			*pod.Pod = *present[0]
			finished, succeeded := pod.Finished()
			if finished && !succeeded {
				return false, copyFailedError(pod)
			}
			return finished || done(pod.Pod), nil
		})
	}
	starting, cancel := context.WithTimeout(s.Ctx, s.StartTimeout)
	defer cancel()
	if err := wait(starting, func(pod *corev1.Pod) bool { return kube.HasRun(manifest.OwnContainerStatus(pod)) }); err != nil {
		return s.ExplainTimeout(call.CodeDiskCopyTimeout, pod.Pod, err, "timed out starting the copy of disk "+disk)
	}
	err := wait(s.Ctx, func(*corev1.Pod) bool { return false })
	return s.ExplainTimeout(call.CodeDiskCopyTimeout, pod.Pod, err,
		"timed out copying disk "+disk+"; raise timeouts.update_disk, or rerun update_disk to continue")
}

// copyFailedError returns the error for a failed copy Pod, with the reason reported by its program, its container or its node.
func copyFailedError(pod manifest.CopyPod) error {
	code, reason := call.CodeDiskCopyFailed, cmp.Or(pod.Status.Message, pod.Status.Reason, "its node "+pod.Spec.NodeName+" was lost")
	if terminated := manifest.OwnContainerStatus(pod.Pod).State.Terminated; terminated != nil {
		reason = cmp.Or(
			strings.TrimSpace(terminated.Message),
			fmt.Sprintf("exit status %d (%s)", terminated.ExitCode, terminated.Reason),
		)
		if terminated.ExitCode == manifest.ExitNoSpace {
			code = call.CodeDiskCopyFull
		}
	}
	return code.Errorf("cannot copy disk %s: %s; the disk is unchanged", pod.Disk(), reason)
}

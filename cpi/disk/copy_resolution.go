package disk

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// ResolveCopy makes a disk the one that is used: from here on the director knows of it alone. The copy
// that a call has begun of it is given up, or, when it is a copy itself, the disk that it was made of is
// deleted. Nearly all disks are neither. It returns the disk as it is then.
func (s *Session) ResolveCopy(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := s.acceptCopy(pvc)
	if err != nil {
		return pvc, err
	}
	return s.abandonCopy(pvc)
}

// CheckNoPendingCopy refuses a disk that update_disk has begun to copy, or has made, since a call has settled that.
func CheckNoPendingCopy(pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Annotations[manifest.AnnotationCopiedTo] == "" && pvc.Labels[manifest.LabelCopy] == "" {
		return nil
	}
	return call.InUse(call.CloudError.Errorf("update_disk has begun to copy disk %s meanwhile: repeat that call, or this one", pvc.Name))
}

// acceptCopy accepts a proven copy, and deletes the disk that it was made of. From the acceptance on no call abandons it.
func (s *Session) acceptCopy(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	former := pvc.Annotations[manifest.AnnotationCopyOf]
	switch pvc.Labels[manifest.LabelCopy] {
	case "":
		return pvc, nil
	case manifest.CopyIncomplete:
		return pvc, call.CloudError.Errorf("disk %s is an incomplete copy of disk %s: repeat update_disk", pvc.Name, former)
	case manifest.CopyVerified:
		accepted, err := s.advanceCopy(pvc, manifest.CopyVerified, manifest.CopyAccepted)
		if errors.Is(err, kube.ErrConflict) {
			if pvc, err = s.GetPVC(pvc.Name); err != nil {
				return pvc, err
			}
			return s.acceptCopy(pvc) // another call has accepted it, or abandoned it
		}
		if err != nil {
			return pvc, err
		}
		pvc = accepted
	}
	if err := s.deleteOriginal(former, pvc.Name); err != nil {
		return pvc, err
	}
	if err := s.deleteCopyPod(former); err != nil { // its Pod would keep the PVC
		return pvc, err
	}
	patch, err := manifest.FinishCopy()
	if err != nil {
		return pvc, err
	}
	finished, err := s.PVCs.PatchJSON(s.Ctx, pvc.Name, patch)
	if errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNotFound) { // another call has finished it, or deleted the disk
		return s.GetPVC(pvc.Name)
	}
	return finished, err
}

// advanceCopy records how far the copy is, if that has not changed since it was read: kube.ErrConflict. One that is gone is
// DiskNotFound.
func (s *Session) advanceCopy(pvc *corev1.PersistentVolumeClaim, from, to string) (*corev1.PersistentVolumeClaim, error) {
	patch, err := manifest.AdvanceCopy(pvc, from, to)
	if err != nil {
		return pvc, err
	}
	advanced, err := s.PVCs.PatchJSON(s.Ctx, pvc.Name, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return pvc, call.NoDisk(pvc.Name)
	}
	return advanced, err
}

// deleteOriginal deletes the disk that the successor was copied from, exactly as it was when it was found free.
func (s *Session) deleteOriginal(former, successor string) error {
	for {
		old, err := s.GetPVC(former)
		if call.DiskNotFound.Is(err) || err == nil && old.Annotations[manifest.AnnotationCopiedTo] != successor {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.checkUnattached(old); err != nil {
			return err
		}
		if err := s.PVCs.DeleteUnchanged(s.Ctx, old); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// abandonCopy removes a copy of the disk, which is about to be used: its data will change. A copy that runs is left to
// end, and one that has taken the disk's place is not taken back. What others change meanwhile is judged again.
func (s *Session) abandonCopy(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	for {
		successor := pvc.Annotations[manifest.AnnotationCopiedTo]
		if successor == "" {
			return pvc, nil
		}
		abandoned, err := s.tryAbandonCopy(pvc, successor)
		if !errors.Is(err, kube.ErrConflict) {
			return abandoned, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
	}
}

// tryAbandonCopy is one try of abandonCopy: kube.ErrConflict if something has changed since it was judged.
func (s *Session) tryAbandonCopy(pvc *corev1.PersistentVolumeClaim, successor string) (*corev1.PersistentVolumeClaim, error) {
	if err := s.checkUnattached(pvc); err != nil {
		return pvc, err
	}
	if err := s.deleteCopyPod(pvc.Name); err != nil {
		return pvc, err
	}
	copied, err := s.GetPVC(successor)
	switch {
	case call.DiskNotFound.Is(err):
	case err != nil:
		return pvc, err
	case copied.Annotations[manifest.AnnotationCopyOf] != pvc.Name: // another's
	default:
		if err := s.deleteCopyPVC(pvc.Name, copied); err != nil {
			return pvc, err
		}
	}
	return s.clearCopyRecord(pvc)
}

// deleteCopyPVC deletes a copy that the director has not named. One that is proven becomes unproven first, so that no call
// accepts it any more.
func (s *Session) deleteCopyPVC(disk string, copied *corev1.PersistentVolumeClaim) (err error) {
	switch copied.Labels[manifest.LabelCopy] {
	case manifest.CopyIncomplete:
	case manifest.CopyVerified:
		if copied, err = s.advanceCopy(copied, manifest.CopyVerified, manifest.CopyIncomplete); err != nil {
			if call.DiskNotFound.Is(err) {
				return nil
			}
			return err
		}
	default:
		return call.CloudError.Errorf("disk %s has taken the place of disk %s", copied.Name, disk)
	}
	return s.PVCs.DeleteUnchanged(s.Ctx, copied)
}

// clearCopyRecord removes the record of a copy from the disk, if nothing has changed since it was read.
func (s *Session) clearCopyRecord(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	patch, err := manifest.AbandonCopy(pvc)
	if err != nil {
		return pvc, err
	}
	return s.PVCs.Patch(s.Ctx, pvc.Name, patch)
}

// deleteCopyPod removes the Pod of the disk's copy, and waits until its node has let go of both disks. A copy that has begun to
// run meanwhile is refused.
func (s *Session) deleteCopyPod(disk string) error {
	for {
		pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
		switch {
		case errors.Is(err, kube.ErrNotFound) || err == nil && !IsCopyPod(pod):
			return nil
		case err != nil:
			return err
		case pod.DeletionTimestamp == nil && copyRunning(pod):
			return CopyingError(pod)
		}
		if err = s.Pods.DeleteUnchanged(s.Ctx, pod); err == nil {
			return s.WaitForDeletion(pod)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

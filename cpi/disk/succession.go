package disk

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// SettleCopy makes a disk the one that is used: from here on the director knows of it alone. The copy
// that a call has begun of it is given up, or, when it is a copy itself, the disk that it was made of is
// deleted. Nearly all disks are neither. It returns the disk as it is then.
func (s *Session) SettleCopy(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := s.takeOver(pvc)
	if err != nil {
		return pvc, err
	}
	return s.abandonCopy(pvc)
}

// Settled refuses a disk that update_disk has begun to copy, or has made, since a call has settled that.
func Settled(pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Annotations[manifest.AnnotationCopiedTo] == "" && pvc.Labels[manifest.LabelCopy] == "" {
		return nil
	}
	return call.InUse(call.CloudError.Errorf("update_disk has begun to copy disk %s meanwhile: repeat that call, or this one", pvc.Name))
}

// takeOver accepts a proven copy, and deletes the disk that it was made of. From the acceptance on no call abandons it.
func (s *Session) takeOver(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	former := pvc.Annotations[manifest.AnnotationCopyOf]
	switch pvc.Labels[manifest.LabelCopy] {
	case "":
		return pvc, nil
	case manifest.CopyUnproven:
		return pvc, call.CloudError.Errorf("disk %s is an incomplete copy of disk %s: repeat update_disk", pvc.Name, former)
	case manifest.CopyProven:
		accepted, err := s.advanceCopy(pvc, manifest.CopyProven, manifest.CopyAccepted)
		if errors.Is(err, kube.ErrConflict) {
			if pvc, err = s.Claim(pvc.Name); err != nil {
				return pvc, err
			}
			return s.takeOver(pvc) // another call has accepted it, or abandoned it
		}
		if err != nil {
			return pvc, err
		}
		pvc = accepted
	}
	if err := s.deleteFormer(former, pvc.Name); err != nil {
		return pvc, err
	}
	if err := s.endCopy(former); err != nil { // its Pod would keep the PVC
		return pvc, err
	}
	patch, err := manifest.FinishCopy()
	if err != nil {
		return pvc, err
	}
	finished, err := s.Claims.PatchIf(s.Ctx, pvc.Name, patch)
	if errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNotFound) { // another call has finished it, or deleted the disk
		return s.Claim(pvc.Name)
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
	advanced, err := s.Claims.PatchIf(s.Ctx, pvc.Name, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return pvc, call.NoDisk(pvc.Name)
	}
	return advanced, err
}

// deleteFormer deletes the disk that the successor was copied from, exactly as it was when it was found free.
func (s *Session) deleteFormer(former, successor string) error {
	for {
		old, err := s.Claim(former)
		if call.DiskNotFound.In(err) || err == nil && old.Annotations[manifest.AnnotationCopiedTo] != successor {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.unattached(old); err != nil {
			return err
		}
		if err := s.Claims.DeleteUnchanged(s.Ctx, old); !errors.Is(err, kube.ErrConflict) {
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
		abandoned, err := s.abandon(pvc, successor)
		if !errors.Is(err, kube.ErrConflict) {
			return abandoned, err
		}
		if pvc, err = s.Claim(pvc.Name); err != nil {
			return pvc, err
		}
	}
}

// abandon is one try of abandonCopy: kube.ErrConflict if something has changed since it was judged.
func (s *Session) abandon(pvc *corev1.PersistentVolumeClaim, successor string) (*corev1.PersistentVolumeClaim, error) {
	if err := s.unattached(pvc); err != nil {
		return pvc, err
	}
	if err := s.endCopy(pvc.Name); err != nil {
		return pvc, err
	}
	copied, err := s.Claim(successor)
	switch {
	case call.DiskNotFound.In(err):
	case err != nil:
		return pvc, err
	case copied.Annotations[manifest.AnnotationCopyOf] != pvc.Name: // another's
	default:
		if err := s.deleteCopy(pvc.Name, copied); err != nil {
			return pvc, err
		}
	}
	return s.unmark(pvc)
}

// deleteCopy deletes a copy that the director has not named. One that is proven becomes unproven first, so that no call
// accepts it any more.
func (s *Session) deleteCopy(disk string, copied *corev1.PersistentVolumeClaim) (err error) {
	switch copied.Labels[manifest.LabelCopy] {
	case manifest.CopyUnproven:
	case manifest.CopyProven:
		if copied, err = s.advanceCopy(copied, manifest.CopyProven, manifest.CopyUnproven); err != nil {
			if call.DiskNotFound.In(err) {
				return nil
			}
			return err
		}
	default:
		return call.CloudError.Errorf("disk %s has taken the place of disk %s", copied.Name, disk)
	}
	return s.Claims.DeleteUnchanged(s.Ctx, copied)
}

// unmark removes the record of a copy from the disk, if nothing has changed since it was read.
func (s *Session) unmark(pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	patch, err := manifest.AbandonCopy(pvc)
	if err != nil {
		return pvc, err
	}
	return s.Claims.Patch(s.Ctx, pvc.Name, patch)
}

// endCopy removes the Pod of the disk's copy, and waits until its node has let go of both disks. A copy that has begun to
// run meanwhile is refused.
func (s *Session) endCopy(disk string) error {
	for {
		pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
		switch {
		case errors.Is(err, kube.ErrNotFound) || err == nil && !IsCopy(pod):
			return nil
		case err != nil:
			return err
		case pod.DeletionTimestamp == nil && copyRuns(pod):
			return CopyingError(pod)
		}
		if err = s.Pods.DeleteUnchanged(s.Ctx, pod); err == nil {
			return s.AwaitGone(pod)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

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
// deleted. Nearly all disks are neither.
func (s *Session) SettleCopy(claim *corev1.PersistentVolumeClaim) error {
	if err := s.takeOver(claim); err != nil {
		return err
	}
	return s.abandonCopy(claim)
}

// takeOver deletes the disk that a proven copy was made of.
func (s *Session) takeOver(claim *corev1.PersistentVolumeClaim) error {
	former := claim.Annotations[manifest.AnnotationCopyOf]
	switch claim.Labels[manifest.LabelCopy] {
	case "":
		return nil
	case manifest.CopyUnproven:
		return call.CloudError.Errorf("disk %s is no disk yet, but a copy of disk %s that is not whole: repeat update_disk", claim.Name, former)
	}
	old, err := s.Claim(former)
	if err == nil && old.Annotations[manifest.AnnotationCopiedTo] == claim.Name {
		if err := s.unattached(old); err != nil {
			return err
		}
		err = s.Claims.Delete(s.Ctx, old)
	}
	if err != nil && !call.DiskNotFound.In(err) {
		return err
	}
	if err := s.endCopy(former); err != nil { // its Pod would keep the claim
		return err
	}
	return s.labelCopy(claim.Name, nil)
}

// abandonCopy removes what is there of a copy of the disk, whose data will change. A copy that runs is
// left to end, and one that has taken the disk's place is not taken back.
func (s *Session) abandonCopy(claim *corev1.PersistentVolumeClaim) error {
	successor := claim.Annotations[manifest.AnnotationCopiedTo]
	if successor == "" {
		return nil
	}
	if err := s.unattached(claim); err != nil {
		return err
	}
	return s.undoCopy(claim, successor)
}

// undoCopy ends the copy, removes the successor, and unmarks the disk.
func (s *Session) undoCopy(claim *corev1.PersistentVolumeClaim, successor string) error {
	if err := s.endCopy(claim.Name); err != nil {
		return err
	}
	copied, err := s.Claim(successor)
	switch {
	case call.DiskNotFound.In(err):
	case err != nil:
		return err
	case copied.Annotations[manifest.AnnotationCopyOf] != claim.Name: // another's
	case copied.Labels[manifest.LabelCopy] == "":
		return call.CloudError.Errorf("disk %s has taken the place of disk %s", successor, claim.Name)
	default:
		if err := s.Claims.DeleteUnchanged(s.Ctx, copied); err != nil {
			return err
		}
	}
	return s.Annotate(claim.Name, manifest.AnnotationCopiedTo, nil)
}

// endCopy removes the Pod of the disk's copy, and waits until its node has let go of both disks.
func (s *Session) endCopy(disk string) error {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) || err == nil && !IsCopy(pod) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.End(pod)
}

// labelCopy sets how far the copy is that the disk was made by, or removes the mark.
func (s *Session) labelCopy(cid string, value *string) error {
	return s.label(cid, manifest.LabelCopy, value)
}

// label sets a label of the disk's claim, or removes it when value is nil.
func (s *Session) label(cid, key string, value *string) error {
	patch, err := manifest.SetLabel(key, value)
	if err != nil {
		return err
	}
	_, err = s.Claims.Patch(s.Ctx, cid, patch)
	return err
}

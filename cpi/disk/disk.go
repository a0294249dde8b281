// Package disk implements the CPI methods about persistent disks and snapshots. A disk is a PersistentVolumeClaim.
//
// The package does not import package vm. The PVC records which VM has the disk (see owner.go), and the name of the attachment Pod
// is derived from the name of the disk.
package disk

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Session serves one request about disks.
type Session struct{ *call.Call }

// GetPVC returns the PVC of the disk. If there is no such disk, or its PVC is being deleted and no VM has it, the error is DiskNotFound. If
// a VM has it, the code of the error is CodeDiskBeingDeleted: the disk exists, but Kubernetes does not start a Pod with its PVC, take a
// snapshot or expand the volume.
func (s *Session) GetPVC(cid string) (manifest.DiskPVC, error) {
	pvc, err := s.read(cid)
	switch {
	case errors.Is(err, kube.ErrNotFound) || err == nil && !exists(pvc):
		return manifest.DiskPVC{}, call.DiskNotFoundError(cid)
	case err == nil && pvc.DeletionTimestamp != nil:
		return manifest.DiskPVC{}, beingDeletedError(pvc)
	}
	return pvc, err
}

// exists reports whether the PVC is a disk for the director. If someone deletes the PVC while a VM has the disk, the disk exists until the
// VM releases it: otherwise `bosh cloud-check` would offer to delete the director's reference to the disk.
func exists(pvc manifest.DiskPVC) bool {
	return manifest.HasRole(pvc, manifest.RoleDisk) && (pvc.DeletionTimestamp == nil || manifest.VMOf(pvc) != "")
}

// beingDeletedError returns the error for a disk of a VM, with a PVC that is being deleted.
func beingDeletedError(pvc manifest.DiskPVC) error {
	return call.CodeDiskBeingDeleted.Errorf("disk %s is being deleted: another client deleted its PVC, and VM %s still has it; "+
		"to keep its data when the VM releases it, set the reclaim policy of PersistentVolume %s to Retain",
		pvc.Name, manifest.VMOf(pvc), pvc.Spec.VolumeName)
}

// CheckNotBeingDeleted returns an error if the data of a disk of a VM would be lost when its last Pod is deleted, because another client
// deleted its PVC. BOSH requests the deletion of data only with delete_disk.
func (s *Session) CheckNotBeingDeleted(cid string) error {
	pvc, err := s.read(cid)
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	return s.checkNotBeingDeleted(pvc)
}

// CheckNoneBeingDeleted is CheckNotBeingDeleted for all disks that the VM has.
func (s *Session) CheckNoneBeingDeleted(vmCID string) error {
	disks, err := s.ListOwnedBy(vmCID)
	if err != nil {
		return err
	}
	for _, pvc := range disks {
		if err := s.checkNotBeingDeleted(pvc); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) checkNotBeingDeleted(pvc manifest.DiskPVC) error {
	if !exists(pvc) || pvc.DeletionTimestamp == nil || pvc.Spec.VolumeName == "" {
		return nil
	}
	volume, err := s.PVs.Get(s.Ctx, pvc.Spec.VolumeName)
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	return beingDeletedError(pvc)
}

// read returns the PVC of this name, which may be being deleted, or may not be a disk.
func (s *Session) read(name string) (manifest.DiskPVC, error) {
	pvc, err := s.PVCs.Get(s.Ctx, name)
	return manifest.DiskPVC{PVC: pvc}, err
}

// patch applies a strategic merge patch to the PVC.
func (s *Session) patch(name string, patch []byte) (manifest.DiskPVC, error) {
	patched, err := s.PVCs.Patch(s.Ctx, name, patch)
	return manifest.DiskPVC{PVC: patched}, err
}

// waitFor waits until done returns true for the PVC, and returns its last state. It fails if the PVC is deleted.
func (s *Session) waitFor(pvc manifest.DiskPVC, done func(current manifest.DiskPVC) (bool, error)) (manifest.DiskPVC, error) {
	selection := kube.Selection{Name: pvc.Name}
	err := s.PVCs.Wait(s.Ctx, selection, kube.ListOf(pvc.PVC), func(present []*corev1.PersistentVolumeClaim) (bool, error) {
		if len(present) == 0 {
			return false, call.DiskNotFoundError(pvc.Name)
		}
		pvc = manifest.DiskPVC{PVC: present[0]}
		return done(pvc)
	})
	return pvc, err
}

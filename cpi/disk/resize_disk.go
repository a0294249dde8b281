package disk

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Resize expands the PVC of a detached disk to sizeMiB. The next attachment expands the image file and the filesystem. If the disk
// cannot be resized in place, the error is NotSupported, and nothing is changed: the director then creates another disk and copies
// the data.
func (s *Session) Resize(cid string, sizeMiB int64) error {
	if err := checkSize(sizeMiB); err != nil {
		return err
	}
	s.SetDetail(fmt.Sprintf("to %d MiB", sizeMiB))
	pvc, currentMiB, err := s.getDetached(cid)
	if err != nil {
		return err
	}
	if err := s.checkResizable(pvc, currentMiB, sizeMiB); err != nil {
		return err
	}
	return s.expandPVC(pvc, currentMiB, sizeMiB)
}

// getDetached returns the PVC of a disk that no VM has, when it can be changed, and its recorded size. The disk becomes the subject of the
// call.
func (s *Session) getDetached(cid string) (pvc manifest.DiskPVC, sizeMiB int64, err error) {
	if pvc, err = s.GetPVC(cid); err != nil {
		return pvc, 0, err
	}
	s.SetSubject(s.PVCs.Reference(pvc.PVC))
	if pvc, err = s.waitForBoundPhase(pvc); err != nil {
		return pvc, 0, err
	}
	if err := s.checkUnattached(pvc); err != nil {
		return pvc, 0, err
	}
	sizeMiB, err = RecordedSizeMiB(pvc)
	return pvc, sizeMiB, err
}

// waitForBoundPhase waits until the phase of a PVC with a volume is Bound. A Pod can run with the PVC before that, but the API server
// rejects changes of size and VolumeAttributesClass. If the disk has no volume, waitForBoundPhase does not wait.
func (s *Session) waitForBoundPhase(pvc manifest.DiskPVC) (manifest.DiskPVC, error) {
	pvc, err := s.waitFor(pvc, func(current manifest.DiskPVC) (bool, error) {
		return kube.IsBound(current.PVC) || !kube.HasVolume(current.PVC), nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		err = call.WithMessage(err, fmt.Sprintf("timed out waiting for the phase Bound of PVC %s, which has volume %s; "+
			"check that kube-controller-manager runs", pvc.Name, pvc.Spec.VolumeName))
	}
	return pvc, err
}

// checkResizable checks that the disk has the size, or that its PVC can be expanded in place.
func (s *Session) checkResizable(pvc manifest.DiskPVC, currentMiB, sizeMiB int64) error {
	switch {
	case sizeMiB < currentMiB:
		return shrinkError(pvc, currentMiB, sizeMiB)
	case sizeMiB == currentMiB:
		return nil
	case !kube.HasVolume(pvc.PVC):
		return call.CodeDiskResizeUnsupported.Errorf("cannot resize disk %s: it does not have a volume yet; attach it to a VM first", pvc.Name)
	}
	return s.checkExpandable(pvc)
}

func shrinkError(pvc manifest.DiskPVC, currentMiB, sizeMiB int64) error {
	return call.CodeDiskResizeUnsupported.Errorf("cannot shrink disk %s from %d MiB to %d MiB in place: "+
		"Kubernetes only expands volumes; BOSH copies the data instead", pvc.Name, currentMiB, sizeMiB)
}

// expandPVC requests the storage, waits for it, and only then records the disk's size: if the volume cannot be expanded, the disk
// keeps its size. A retried call resumes an interrupted expansion. If the disk already has the size, expandPVC changes nothing.
func (s *Session) expandPVC(pvc manifest.DiskPVC, currentMiB, sizeMiB int64) error {
	if !kube.HasVolume(pvc.PVC) { // the disk has the size, but no volume yet
		return nil
	}
	desired := *resource.NewQuantity(manifest.PVCSizeMiB(sizeMiB, pvc.VolumeMode())<<20, resource.BinarySI)
	if sizeMiB > currentMiB {
		patched, err := s.requestStorage(pvc, desired)
		if err != nil {
			return err
		}
		pvc = patched
	}
	pvc, err := s.waitForExpansion(pvc, desired)
	if err != nil {
		return err
	}
	return s.recordSize(pvc, sizeMiB)
}

// recordSize records the size on the PVC. It returns an error if another call recorded a larger size in the meantime.
func (s *Session) recordSize(pvc manifest.DiskPVC, sizeMiB int64) error {
	for {
		currentMiB, err := RecordedSizeMiB(pvc)
		switch {
		case err != nil || currentMiB == sizeMiB:
			return err
		case currentMiB > sizeMiB:
			return shrinkError(pvc, currentMiB, sizeMiB)
		}
		if _, err = s.patch(pvc.Name, manifest.RecordSizePatch(pvc, sizeMiB)); !errors.Is(err, kube.ErrConflict) {
			return err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return err
		}
	}
}

// requestStorage sets the PVC's storage request to desired. A failed or interrupted expansion may have requested more. requestStorage
// reduces that request only if desired is greater than the capacity of the volume, because Kubernetes accepts no other reduction.
func (s *Session) requestStorage(pvc manifest.DiskPVC, desired resource.Quantity) (manifest.DiskPVC, error) {
	return s.patchUnattached(pvc, func(current manifest.DiskPVC) []byte {
		requested, capacity := current.Spec.Resources.Requests[corev1.ResourceStorage], current.Status.Capacity[corev1.ResourceStorage]
		if desired.Cmp(requested) == 0 || desired.Cmp(requested) < 0 && desired.Cmp(capacity) <= 0 {
			return nil
		}
		return manifest.RequestStoragePatch(current, desired)
	})
}

// patchUnattached applies the patch that build returns for the PVC, unless the patch is nil. The patch must require the PVC's
// resourceVersion, so that no VM gets the disk before the change. After a conflict, patchUnattached checks again that no VM has the disk,
// and calls build again.
func (s *Session) patchUnattached(pvc manifest.DiskPVC, build func(current manifest.DiskPVC) []byte) (manifest.DiskPVC, error) {
	for {
		patch := build(pvc)
		if patch == nil {
			return pvc, nil
		}
		if err := s.CheckFreeFor(pvc, ""); err != nil { // the PVC may have changed since the last check
			return pvc, err
		}
		patched, err := s.patch(pvc.Name, patch)
		if !errors.Is(err, kube.ErrConflict) {
			return patched, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
		if err := s.checkUnattached(pvc); err != nil {
			return pvc, err
		}
	}
}

// checkExpandable returns an error if the StorageClass of the PVC does not allow expansion.
func (s *Session) checkExpandable(pvc manifest.DiskPVC) error {
	name := pvc.StorageClass()
	if name == "" {
		return call.CodeDiskResizeUnsupported.Errorf("cannot expand disk %s in place: its PVC has no StorageClass; "+
			"BOSH copies the data instead", pvc.Name)
	}
	storageClass, err := s.StorageClasses().Get(s.Ctx, name)
	if errors.Is(err, kube.ErrNotFound) {
		return call.CodeDiskResizeUnsupported.Errorf("cannot expand disk %s: StorageClass %s not found", pvc.Name, name)
	}
	if err != nil {
		return err
	}
	if storageClass.AllowVolumeExpansion == nil || !*storageClass.AllowVolumeExpansion {
		return call.CodeDiskResizeUnsupported.Errorf("cannot expand disk %s: StorageClass %s does not allow expansion; "+
			"set its allowVolumeExpansion to true", pvc.Name, name)
	}
	return nil
}

// waitForExpansion waits until the volume has the desired size, or until only the expansion on the node remains, which the kubelet
// does when the disk is attached next. The reported status may still refer to an earlier request; most resizers report the size of
// that request in allocatedResources. It returns the current PVC.
func (s *Session) waitForExpansion(pvc manifest.DiskPVC, desired resource.Quantity) (manifest.DiskPVC, error) {
	last := "no status was reported"
	pvc, err := s.waitFor(pvc, func(current manifest.DiskPVC) (bool, error) {
		status := current.Status
		if capacity := status.Capacity[corev1.ResourceStorage]; capacity.Cmp(desired) >= 0 {
			return true, nil
		}
		order := 0 // compares the size to which the status refers with the desired one
		if allocated, reported := status.AllocatedResources[corev1.ResourceStorage]; reported {
			order = allocated.Cmp(desired)
		}
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue && order >= 0 {
				return true, nil
			}
			if isAboutExpansion(condition.Type) {
				last = string(condition.Type) + ": " + condition.Message
			}
		}
		switch phase := status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
		case phase == corev1.PersistentVolumeClaimNodeResizePending && order >= 0:
			return true, nil
		case phase == corev1.PersistentVolumeClaimControllerResizeInfeasible && order == 0:
			return false, call.CodeDiskResizeFailed.Errorf("cannot expand the volume of disk %s to %s: %s", pvc.Name, desired.String(), last)
		}
		return false, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		message := "timed out expanding the volume of disk " + pvc.Name + " to " + desired.String() + ": " + last
		err = call.CodeDiskResizeTimeout.Wrap(call.WithMessage(err, message), false)
	}
	return pvc, err
}

// isAboutExpansion reports whether conditions of this type are about expansions. Others are, for example, about the use of the PVC.
func isAboutExpansion(condition corev1.PersistentVolumeClaimConditionType) bool {
	switch condition {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}

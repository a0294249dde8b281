package disk

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Resize grows a detached disk to this many MiB: it expands the claim, and the next attachment
// grows the image file and the filesystem. What cannot grow in place is NotSupported, before anything
// is changed; the director then copies the disk.
func (s *Session) Resize(cid string, sizeMiB int64) error {
	if err := checkSize(sizeMiB); err != nil {
		return err
	}
	pvc, err := s.GetPVC(cid)
	if err != nil {
		return err
	}
	s.SetSubject(s.PVCs.Reference(pvc))
	s.SetDetail(fmt.Sprintf("to %d MiB", sizeMiB))
	if err := s.checkUnattached(pvc); err != nil {
		return err
	}
	return s.growInPlace(pvc, sizeMiB)
}

// growInPlace refuses what cannot be done in place, and expands the claim.
func (s *Session) growInPlace(pvc *corev1.PersistentVolumeClaim, sizeMiB int64) error {
	currentMiB, err := SizeOf(pvc)
	if err != nil {
		return err
	}
	switch {
	case sizeMiB < currentMiB:
		return shrinkError(pvc, currentMiB, sizeMiB)
	case !kube.Bound(pvc):
		return call.NotSupported.Errorf("disk %s has no volume yet and cannot be resized before it was attached once", pvc.Name)
	}
	if sizeMiB > currentMiB {
		if err := s.checkExpandable(pvc); err != nil {
			return err
		}
	}
	return s.expandPVC(pvc, currentMiB, sizeMiB)
}

func shrinkError(pvc *corev1.PersistentVolumeClaim, currentMiB, sizeMiB int64) error {
	return call.NotSupported.Errorf("disk %s has %d MiB and cannot shrink to %d MiB in place", pvc.Name, currentMiB, sizeMiB)
}

// expandPVC is the converge step of growth: it asks for the room, waits for it, and only then notes the
// size, so that a disk whose volume could not be expanded stays what it was. Repeated after a crash, each
// step finds what was done; of a disk that has the size already nothing is changed.
func (s *Session) expandPVC(pvc *corev1.PersistentVolumeClaim, currentMiB, sizeMiB int64) error {
	desired := *resource.NewQuantity(manifest.PVCSizeMiB(sizeMiB, manifest.VolumeMode(pvc), manifest.IsDirectory(pvc))<<20, resource.BinarySI)
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

// recordSize notes the size, unless another call has noted a larger one meanwhile.
func (s *Session) recordSize(pvc *corev1.PersistentVolumeClaim, sizeMiB int64) error {
	for {
		currentMiB, err := SizeOf(pvc)
		switch {
		case err != nil || currentMiB == sizeMiB:
			return err
		case currentMiB > sizeMiB:
			return shrinkError(pvc, currentMiB, sizeMiB)
		}
		patch, err := manifest.RecordSize(pvc, sizeMiB)
		if err != nil {
			return err
		}
		if _, err = s.PVCs.Patch(s.Ctx, pvc.Name, patch); !errors.Is(err, kube.ErrConflict) {
			return err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return err
		}
	}
}

// requestStorage makes the claim ask for this much, unless a VM has got the disk since the call has looked. A larger request,
// which an expansion that failed or whose call was killed has left, is taken back only where Kubernetes allows it: to more
// than the volume has.
func (s *Session) requestStorage(pvc *corev1.PersistentVolumeClaim, desired resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	for {
		requested, capacity := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
		if desired.Cmp(requested) == 0 || desired.Cmp(requested) < 0 && desired.Cmp(capacity) <= 0 {
			return pvc, nil
		}
		patch, err := manifest.RequestStorage(pvc, desired)
		if err != nil {
			return nil, err
		}
		patched, err := s.PVCs.Patch(s.Ctx, pvc.Name, patch)
		if !errors.Is(err, kube.ErrConflict) {
			return patched, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return nil, err
		}
		if err := s.checkUnattached(pvc); err != nil {
			return nil, err
		}
	}
}

// checkExpandable refuses a claim whose class cannot expand it.
func (s *Session) checkExpandable(pvc *corev1.PersistentVolumeClaim) error {
	name := ""
	if pvc.Spec.StorageClassName != nil {
		name = *pvc.Spec.StorageClassName
	}
	if name == "" {
		return call.NotSupported.Errorf("disk %s has no StorageClass that could expand it", pvc.Name)
	}
	storageClasses, err := s.StorageClasses()
	if err != nil {
		return err
	}
	storageClass, err := storageClasses.Get(s.Ctx, name)
	if errors.Is(err, kube.ErrNotFound) {
		return call.NotSupported.Errorf("disk %s cannot be expanded: its StorageClass %s is gone", pvc.Name, name)
	}
	if err != nil {
		return err
	}
	if storageClass.AllowVolumeExpansion == nil || !*storageClass.AllowVolumeExpansion {
		return call.NotSupported.Errorf("StorageClass %s of disk %s does not allow volume expansion (allowVolumeExpansion)", name, pvc.Name)
	}
	return nil
}

// waitForExpansion waits until the volume has this size, or until all that is left is the node's part, which
// the kubelet does when the disk is attached next. The status may still be about an earlier request: most
// resizers tell of which size it is. It returns the claim as it is then.
func (s *Session) waitForExpansion(pvc *corev1.PersistentVolumeClaim, desired resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	last := "nothing was reported"
	selection := kube.Selection{Name: pvc.Name}
	err := s.PVCs.Wait(s.Ctx, selection, kube.ListOf(pvc), func(present []*corev1.PersistentVolumeClaim) (bool, error) {
		if len(present) == 0 {
			return false, call.NoDisk(pvc.Name)
		}
		pvc = present[0]
		status := pvc.Status
		if capacity := status.Capacity[corev1.ResourceStorage]; capacity.Cmp(desired) >= 0 {
			return true, nil
		}
		order := 0 // of the size that the status is about to the one wanted
		if allocated, reported := status.AllocatedResources[corev1.ResourceStorage]; reported {
			order = allocated.Cmp(desired)
		}
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue && order >= 0 {
				return true, nil
			}
			last = string(condition.Type) + ": " + condition.Message
		}
		switch phase := status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
		case phase == corev1.PersistentVolumeClaimNodeResizePending && order >= 0:
			return true, nil
		case phase == corev1.PersistentVolumeClaimControllerResizeInfeasible && order == 0:
			return false, call.CloudError.Errorf("the volume of disk %s cannot be expanded to %s: %s", pvc.Name, desired.String(), last)
		}
		return false, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		err = call.WithMessage(err, "the volume of disk "+pvc.Name+" was not expanded to "+desired.String()+": "+last)
	}
	return pvc, err
}

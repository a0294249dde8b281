package disk

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Update changes the size and the cloud_properties of a detached disk, and returns the CID to use from now on. If the PVC can be
// changed in place, the CID stays the same. Otherwise Update copies the data to a new disk and returns its CID. A retried call
// returns the same CID, even if the first one was interrupted.
func (s *Session) Update(cid string, sizeMiB int64, properties json.RawMessage) (string, error) {
	if err := checkSize(sizeMiB); err != nil {
		return "", err
	}
	desired, err := parseProperties(properties)
	if err != nil {
		return "", err
	}
	successor, err := successorName(cid, sizeMiB, desired)
	if err != nil {
		return "", err
	}
	pvc, err := s.GetPVC(cid)
	if call.DiskNotFound.Is(err) {
		return successor, s.checkReplaced(cid, successor, err)
	}
	if err != nil {
		return "", err
	}
	s.SetSubject(s.PVCs.Reference(pvc.PVC))
	inPlace, err := s.canUpdateInPlace(pvc, sizeMiB, desired)
	if err != nil {
		return "", err
	}
	if inPlace {
		return cid, s.updateInPlace(pvc, sizeMiB, desired)
	}
	if pvc, err = s.acceptCopy(pvc); err != nil {
		return "", err
	}
	s.SetDetail("to disk " + successor)
	return successor, s.copyDisk(pvc, desired.buildDisk(successor, s.Director, sizeMiB))
}

// successorName returns the CID of the disk to which this request copies the disk. Equal requests have equal successors.
func successorName(cid string, sizeMiB int64, desired Properties) (string, error) {
	request, err := json.Marshal([]any{cid, sizeMiB, desired.StorageClass, desired.VolumeMode, desired.AccessModes, desired.Filesystem})
	return manifest.DiskName(uuid.NewSHA1(uuid.Nil, request).String()), err
}

// checkReplaced returns nil if an earlier call with the same request replaced the disk by the successor. Otherwise it returns
// notFound.
func (s *Session) checkReplaced(cid, successor string, notFound error) error {
	replacement, err := s.GetPVC(successor)
	switch {
	case call.DiskNotFound.Is(err):
		return notFound
	case err != nil:
		return err
	case replacement.CopyOf() != cid || replacement.CopyState() == manifest.CopyIncomplete:
		return notFound
	}
	return nil
}

// canUpdateInPlace reports whether the PVC can be changed to the requested size and properties. If no StorageClass is requested,
// the PVC keeps its StorageClass.
func (s *Session) canUpdateInPlace(pvc manifest.DiskPVC, sizeMiB int64, desired Properties) (bool, error) {
	currentMiB, err := RecordedSizeMiB(pvc)
	if err != nil {
		return false, err
	}
	storageClass := pvc.Spec.StorageClassName
	switch {
	case desired.StorageClass != "" && (storageClass == nil || *storageClass != desired.StorageClass),
		desired.VolumeMode != pvc.VolumeMode(),
		!sameAccessModes(desired.AccessModes, pvc.Spec.AccessModes),
		desired.Filesystem != pvc.Filesystem(),
		sizeMiB < currentMiB:
		return false, nil
	case sizeMiB == currentMiB:
		return true, nil
	case !kube.IsBound(pvc.PVC): // there is no volume to expand
		return false, nil
	}
	err = s.checkExpandable(pvc)
	if call.NotSupported.Is(err) {
		return false, nil
	}
	return err == nil, err
}

// sameAccessModes compares access modes without regard to order and duplicates.
func sameAccessModes(a, b []corev1.PersistentVolumeAccessMode) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// updateInPlace sets labels and annotations, and expands the PVC.
func (s *Session) updateInPlace(pvc manifest.DiskPVC, sizeMiB int64, desired Properties) error {
	if err := s.checkUnattached(pvc); err != nil {
		return err
	}
	pvc, err := s.ResolveCopy(pvc)
	if err != nil {
		return err
	}
	currentMiB, err := RecordedSizeMiB(pvc)
	if err != nil {
		return err
	}
	patch, err := desired.buildDisk(pvc.Name, s.Director, currentMiB).RelabelPatch(pvc)
	if err != nil {
		return err
	}
	if patch != nil {
		if pvc, err = s.patch(pvc.Name, patch); err != nil {
			return err
		}
	}
	if !kube.IsBound(pvc.PVC) {
		return nil
	}
	return s.expandPVC(pvc, currentMiB, sizeMiB)
}

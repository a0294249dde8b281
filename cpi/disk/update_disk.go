package disk

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// Update changes the size and the cloud_properties of a detached disk in place, and returns its CID. If Kubernetes cannot change the
// PVC in place, the error is NotSupported, and nothing is changed: the director then creates another disk, and the agent copies the data.
func (s *Session) Update(cid string, sizeMiB int64, properties json.RawMessage) (string, error) {
	if err := checkSize(sizeMiB); err != nil {
		return "", err
	}
	desired, err := parseProperties(properties)
	if err != nil {
		return "", err
	}
	pvc, currentMiB, err := s.getDetached(cid)
	if err != nil {
		return "", err
	}
	if err := s.checkUpdatable(pvc, currentMiB, sizeMiB, desired); err != nil {
		return "", err
	}
	return cid, s.update(pvc, currentMiB, sizeMiB, desired)
}

// checkUpdatable checks that the PVC can be changed to the requested size and properties in place. Without a requested StorageClass,
// VolumeAttributesClass or filesystem, the disk keeps its own.
func (s *Session) checkUpdatable(pvc manifest.DiskPVC, currentMiB, sizeMiB int64, desired Properties) error {
	for _, property := range []struct{ name, current, desired string }{
		{"storage_class", pvc.StorageClass(), cmp.Or(desired.StorageClass, pvc.StorageClass())},
		{"volume_mode", string(pvc.VolumeMode()), string(desired.VolumeMode)},
		{"access_modes", describeAccessModes(pvc.Spec.AccessModes), describeAccessModes(desired.AccessModes)},
		{"filesystem", pvc.Filesystem(), cmp.Or(desired.Filesystem, pvc.Filesystem())},
	} {
		if property.current != property.desired {
			return notInPlaceError(pvc, property.name, property.current, property.desired)
		}
	}
	if err := s.checkResizable(pvc, currentMiB, sizeMiB); err != nil {
		return err
	}
	return s.checkAttributesClass(pvc, desired.VolumeAttributesClass)
}

func notInPlaceError(pvc manifest.DiskPVC, property, current, desired string) error {
	return call.CodeDiskUpdateUnsupported.Errorf("cannot change %s of disk %s from %s to %s in place; BOSH copies the data instead",
		property, pvc.Name, cmp.Or(current, "none"), desired)
}

// describeAccessModes lists access modes without duplicates, sorted.
func describeAccessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, mode := range modes {
		names = append(names, string(mode))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// update sets labels and annotations, changes the VolumeAttributesClass, and expands the PVC.
func (s *Session) update(pvc manifest.DiskPVC, currentMiB, sizeMiB int64, desired Properties) (err error) {
	if patch := desired.buildDisk(pvc.Name, s.Director, currentMiB).RelabelPatch(pvc); patch != nil {
		if pvc, err = s.patch(pvc.Name, patch); err != nil {
			return err
		}
	}
	if pvc, err = s.changeAttributesClass(pvc, desired.VolumeAttributesClass); err != nil {
		return err
	}
	return s.expandPVC(pvc, currentMiB, sizeMiB)
}

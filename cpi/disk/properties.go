package disk

import (
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/kube/document"
)

// Properties are the cloud_properties of a disk.
type Properties struct {
	// Name is the name of a dynamic disk. The director adds it to the properties of the disk type (create_dynamic_disk.rb,
	// provide_dynamic_disk.rb).
	Name string `json:"name"`
	// StorageClass is the StorageClass of the PVC; if empty, the cluster's default.
	StorageClass string `json:"storage_class"`
	// VolumeAttributesClass is the VolumeAttributesClass of the volume; if empty, none for a new disk.
	VolumeAttributesClass string `json:"volume_attributes_class"`
	// VolumeMode is Filesystem (the disk is an image file on the volume, or the volume itself in a VM with disk_strategy: recreate) or
	// Block (the disk is the volume).
	VolumeMode corev1.PersistentVolumeMode `json:"volume_mode"`
	// AccessModes are the access modes of the PVC; by default ReadWriteOnce.
	AccessModes []corev1.PersistentVolumeAccessMode `json:"access_modes"`
	// Filesystem is the filesystem that is created on a blank disk: ext4 or xfs. The default is env.persistent_disk_fs of the VM, or ext4.
	Filesystem string `json:"filesystem"`
	// Preallocate allocates the full size of the image file when the disk is attached: see manifest.AnnotationPreallocate.
	Preallocate bool              `json:"preallocate"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Snapshot is the CID of the snapshot with the initial content of the disk; if empty, the disk is blank.
	Snapshot string `json:"snapshot"`
	// SnapshotClass is the VolumeSnapshotClass for snapshots of the disk; if empty, the cluster's default.
	SnapshotClass string `json:"snapshot_class"`
}

// parseProperties decodes and validates cloud_properties, and sets defaults.
func parseProperties(raw json.RawMessage) (Properties, error) {
	properties := Properties{
		VolumeMode:  corev1.PersistentVolumeFilesystem,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}
	if err := document.Decode("cloud_properties", raw, &properties); err != nil {
		return properties, call.InvalidPropertyf("%w", err)
	}
	if properties.VolumeMode != corev1.PersistentVolumeFilesystem && properties.VolumeMode != corev1.PersistentVolumeBlock {
		return properties, call.InvalidPropertyf("cloud_properties.volume_mode %q is not valid; use Filesystem or Block", properties.VolumeMode)
	}
	for _, class := range []struct{ key, name, kind string }{
		{"storage_class", properties.StorageClass, "StorageClass"},
		{"volume_attributes_class", properties.VolumeAttributesClass, "VolumeAttributesClass"},
		{"snapshot_class", properties.SnapshotClass, "VolumeSnapshotClass"},
	} {
		if class.name != "" && len(validation.IsDNS1123Subdomain(class.name)) > 0 {
			return properties, call.InvalidPropertyf("cloud_properties.%s %q is not valid; use the name of a %s", class.key, class.name, class.kind)
		}
	}
	if properties.Filesystem != "" && !api.IsFilesystem(properties.Filesystem) {
		return properties, call.InvalidPropertyf("cloud_properties.filesystem %q is not valid; use ext4 or xfs", properties.Filesystem)
	}
	if properties.Preallocate && properties.VolumeMode == corev1.PersistentVolumeBlock {
		return properties, call.InvalidPropertyf("cloud_properties.preallocate applies only to disks that are image files; " +
			"remove it, or use volume_mode: Filesystem")
	}
	for _, mode := range properties.AccessModes {
		known := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod}
		if !slices.Contains(known, mode) {
			return properties, call.InvalidPropertyf("cloud_properties.access_modes: %q is not valid; "+
				"use ReadWriteOnce, ReadWriteMany or ReadWriteOncePod", mode)
		}
	}
	return properties, call.CheckLabels("cloud_properties", properties.Labels, properties.Annotations)
}

// buildDisk returns the disk that the properties request.
func (p Properties) buildDisk(name, director string, sizeMiB int64) manifest.Disk {
	return manifest.Disk{
		Name: name, Director: director, SizeMiB: sizeMiB, DynamicDisk: p.Name,
		StorageClass: p.StorageClass, AttributesClass: p.VolumeAttributesClass,
		Mode: p.VolumeMode, AccessModes: p.AccessModes, Filesystem: p.Filesystem, Preallocate: p.Preallocate,
		Labels: p.Labels, Annotations: p.Annotations, Snapshot: p.Snapshot, SnapshotClass: p.SnapshotClass,
	}
}

// maxSizeMiB is 1 EiB, more than any volume has. Sizes in bytes with some space for a filesystem must fit into 64 bits.
const maxSizeMiB = 1 << 40

func checkSize(sizeMiB int64) error {
	if sizeMiB <= 0 || sizeMiB > maxSizeMiB {
		return call.CodeInvalidRequest.Errorf("disk size %d MiB is not valid; use 1 to %d", sizeMiB, maxSizeMiB)
	}
	return nil
}

// RecordedSizeMiB returns the size of a disk in MiB as BOSH requested it.
func RecordedSizeMiB(pvc manifest.DiskPVC) (int64, error) {
	size, err := strconv.ParseInt(pvc.RecordedSize(), 10, 64)
	if err != nil {
		return 0, call.CodeDiskNotManaged.Errorf("PVC %s was not created by this CPI: its annotation %s is missing or invalid (%q)",
			pvc.Name, manifest.AnnotationSize, pvc.RecordedSize())
	}
	return size, nil
}

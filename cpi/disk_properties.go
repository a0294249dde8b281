package cpi

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

// DiskProperties are a disk's cloud_properties.
type DiskProperties struct {
	// StorageClass is the claim's class; the cluster's default one when empty.
	StorageClass string `json:"storage_class"`
	// VolumeMode is Filesystem (the disk is an image file on the volume) or Block (it is the volume).
	VolumeMode corev1.PersistentVolumeMode `json:"volume_mode"`
	// AccessModes are the claim's; ReadWriteOnce by default.
	AccessModes []corev1.PersistentVolumeAccessMode `json:"access_modes"`
	// Filesystem is what a blank disk gets: ext4 or xfs.
	Filesystem  string            `json:"filesystem"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Snapshot is the CID of a snapshot that the disk starts with the content of.
	Snapshot string `json:"snapshot"`
}

func parseDiskProperties(raw json.RawMessage) (DiskProperties, error) {
	properties := DiskProperties{
		VolumeMode:  corev1.PersistentVolumeFilesystem,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Filesystem:  "ext4",
	}
	if err := decodeStrict("cloud_properties", raw, &properties); err != nil {
		return properties, invalid("%w", err)
	}
	if !slices.Contains([]corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock}, properties.VolumeMode) {
		return properties, invalid("cloud_properties.volume_mode %q is neither Filesystem nor Block", properties.VolumeMode)
	}
	if !slices.Contains([]string{"ext4", "xfs"}, properties.Filesystem) {
		return properties, invalid("cloud_properties.filesystem %q is neither ext4 nor xfs", properties.Filesystem)
	}
	for _, mode := range properties.AccessModes {
		known := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod}
		if !slices.Contains(known, mode) {
			return properties, invalid("cloud_properties.access_modes: %q is none of ReadWriteOnce, ReadWriteMany, ReadWriteOncePod", mode)
		}
	}
	return properties, validateLabels(properties.Labels, properties.Annotations)
}

func (p DiskProperties) disk(name, director string, sizeMiB int64) manifest.Disk {
	disk := manifest.Disk{
		Name: name, Director: director, SizeMiB: sizeMiB,
		Mode: p.VolumeMode, AccessModes: p.AccessModes, Filesystem: p.Filesystem,
		Labels: p.Labels, Annotations: p.Annotations, Snapshot: p.Snapshot,
	}
	if p.StorageClass != "" {
		disk.StorageClass = &p.StorageClass
	}
	return disk
}

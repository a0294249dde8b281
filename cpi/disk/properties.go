package disk

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Properties are a disk's cloud_properties.
type Properties struct {
	// StorageClass is the claim's class; the cluster's default one when empty.
	StorageClass string `json:"storage_class"`
	// VolumeMode is Filesystem (the disk is an image file on the volume) or Block (it is the volume).
	VolumeMode corev1.PersistentVolumeMode `json:"volume_mode"`
	// AccessModes are the claim's; ReadWriteOnce by default.
	AccessModes []corev1.PersistentVolumeAccessMode `json:"access_modes"`
	// Attach is device, or bind for a disk that appears as a directory: see manifest.AnnotationAttach.
	Attach string `json:"attach"`
	// Filesystem is what a blank disk gets: ext4 (the default) or xfs.
	Filesystem string `json:"filesystem"`
	// Reserve has the image file take all of its room from the volume at once: see manifest.AnnotationReserve.
	Reserve     bool              `json:"reserve"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Snapshot is the CID of a snapshot that the disk starts with the content of.
	Snapshot string `json:"snapshot"`
	// SnapshotClass is the VolumeSnapshotClass of the disk's own snapshots; the cluster's default one when empty.
	SnapshotClass string `json:"snapshot_class"`
}

func parseProperties(raw json.RawMessage) (Properties, error) {
	properties := Properties{
		VolumeMode:  corev1.PersistentVolumeFilesystem,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Attach:      attachDevice,
	}
	if err := call.DecodeStrict("cloud_properties", raw, &properties); err != nil {
		return properties, call.Invalid("%w", err)
	}
	if properties.VolumeMode != corev1.PersistentVolumeFilesystem && properties.VolumeMode != corev1.PersistentVolumeBlock {
		return properties, call.Invalid("cloud_properties.volume_mode %q is neither Filesystem nor Block", properties.VolumeMode)
	}
	if err := properties.checkAttach(); err != nil {
		return properties, err
	}
	if properties.Attach == attachDevice && !slices.Contains([]string{"ext4", "xfs"}, properties.Filesystem) {
		return properties, call.Invalid("cloud_properties.filesystem %q is neither ext4 nor xfs", properties.Filesystem)
	}
	if properties.Reserve && (properties.VolumeMode == corev1.PersistentVolumeBlock || properties.Attach != attachDevice) {
		return properties, call.Invalid("cloud_properties.reserve has a meaning for a disk that is an image file alone: " +
			"leave it out with volume_mode: Block and with attach: bind")
	}
	for _, mode := range properties.AccessModes {
		known := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod}
		if !slices.Contains(known, mode) {
			return properties, call.Invalid("cloud_properties.access_modes: %q is none of ReadWriteOnce, ReadWriteMany, ReadWriteOncePod", mode)
		}
	}
	return properties, call.CheckLabels("cloud_properties", properties.Labels, properties.Annotations)
}

// attachDevice is the default of attach.
const attachDevice = "device"

// checkAttach refuses what has no meaning for a disk that appears as a directory; one that is a device
// has a filesystem.
func (p *Properties) checkAttach() error {
	switch {
	case p.Attach == attachDevice:
		p.Filesystem = cmp.Or(p.Filesystem, "ext4")
		return nil
	case p.Attach != manifest.AttachBind:
		return call.Invalid("cloud_properties.attach %q is neither device nor bind", p.Attach)
	case p.VolumeMode == corev1.PersistentVolumeBlock:
		return call.Invalid("cloud_properties.volume_mode Block cannot be attached as a directory: " +
			"leave out attach: bind, or use volume_mode Filesystem")
	case p.Filesystem != "":
		return call.Invalid("cloud_properties.filesystem %s has no meaning with attach: bind, where the volume's own filesystem is used: "+
			"leave out one of them", p.Filesystem)
	}
	return nil
}

func (p Properties) buildDisk(name, director string, sizeMiB int64) manifest.Disk {
	disk := manifest.Disk{
		Name: name, Director: director, SizeMiB: sizeMiB,
		Mode: p.VolumeMode, AccessModes: p.AccessModes, Filesystem: p.Filesystem, Reserve: p.Reserve,
		Bind:   p.Attach == manifest.AttachBind,
		Labels: p.Labels, Annotations: p.Annotations, Snapshot: p.Snapshot, SnapshotClass: p.SnapshotClass,
	}
	if p.StorageClass != "" {
		disk.StorageClass = &p.StorageClass
	}
	return disk
}

func checkSize(sizeMiB int64) error {
	if sizeMiB <= 0 {
		return call.Invalid("disk size %d must be greater than 0 (MiB)", sizeMiB)
	}
	return nil
}

// SizeOf returns the size of a disk in MiB as BOSH asked for it.
func SizeOf(pvc *corev1.PersistentVolumeClaim) (int64, error) {
	size, err := strconv.ParseInt(pvc.Annotations[manifest.AnnotationSize], 10, 64)
	if err != nil {
		return 0, call.CloudError.Errorf("claim %s is no disk of this CPI: its annotation %s is %q",
			pvc.Name, manifest.AnnotationSize, pvc.Annotations[manifest.AnnotationSize])
	}
	return size, nil
}

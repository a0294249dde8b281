package manifest

import (
	"cmp"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// Disk describes a persistent disk as a create_disk call requests it.
type Disk struct {
	Name         string
	Namespace    string
	Director     string
	SizeMiB      int64
	StorageClass string // "": the cluster's default
	// AttributesClass is the VolumeAttributesClass of the volume; "" for none.
	AttributesClass string
	Mode            corev1.PersistentVolumeMode
	AccessModes     []corev1.PersistentVolumeAccessMode
	Labels          map[string]string
	Annotations     map[string]string
	Filesystem      string
	DynamicDisk     string // see LabelDynamicDisk
	Preallocate     bool   // see AnnotationPreallocate
	Snapshot        string // name of the VolumeSnapshot with the initial content; empty for a blank disk
	// SnapshotClass is the VolumeSnapshotClass for snapshots of this disk; empty for the cluster's default.
	SnapshotClass string
}

// PVC returns the PVC of the disk.
func (d Disk) PVC() DiskPVC {
	meta := newObjectMeta(d.Name, d.Namespace, d.Director, RoleDisk)
	meta.Labels[LabelDisk] = d.Name
	meta.Annotations = map[string]string{AnnotationSize: strconv.FormatInt(d.SizeMiB, 10)}
	if d.DynamicDisk != "" {
		meta.Annotations[LabelDynamicDisk] = d.DynamicDisk
		if label, ok := LabelValue(d.DynamicDisk); ok {
			meta.Labels[LabelDynamicDisk] = label
		}
	}
	addMissing(meta.Labels, d.Labels)
	if d.Filesystem != "" {
		meta.Annotations[AnnotationFilesystem] = d.Filesystem
	}
	if d.Preallocate {
		meta.Annotations[AnnotationPreallocate] = strconv.FormatBool(true)
	}
	if d.SnapshotClass != "" {
		meta.Annotations[AnnotationSnapshotClass] = d.SnapshotClass
	}
	addMissing(meta.Annotations, d.Annotations)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               d.AccessModes,
			StorageClassName:          optional(d.StorageClass),
			VolumeAttributesClassName: optional(d.AttributesClass),
			VolumeMode:                new(d.Mode),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: mebibytes(PVCSizeMiB(d.SizeMiB, d.Mode)),
			}},
		},
	}
	if d.Snapshot != "" {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: d.Snapshot,
		}
	}
	return DiskPVC{pvc}
}

// PVC is a short name for the embedded object.
type PVC = corev1.PersistentVolumeClaim

// A DiskPVC is the PVC of a disk. Its name is the disk's CID.
type DiskPVC struct{ *PVC }

// NewDiskPVCs returns the PVCs of disks.
func NewDiskPVCs(pvcs []*corev1.PersistentVolumeClaim) []DiskPVC {
	disks := make([]DiskPVC, len(pvcs))
	for i, pvc := range pvcs {
		disks[i] = DiskPVC{pvc}
	}
	return disks
}

// IsDynamic reports whether the disk is a dynamic disk.
func (d DiskPVC) IsDynamic() bool {
	_, dynamic := d.Annotations[LabelDynamicDisk]
	return dynamic
}

// IsPreallocated reports whether the disk's image file is allocated in full size: see AnnotationPreallocate.
func (d DiskPVC) IsPreallocated() bool {
	return d.Annotations[AnnotationPreallocate] == strconv.FormatBool(true)
}

// RelabelPatch returns the strategic merge patch that sets the requested labels and annotations that the disk's PVC lacks, or nil. The
// patch contains nothing else, so that it does not revert changes of other calls.
func (d Disk) RelabelPatch(pvc DiskPVC) []byte {
	desired := Metadata{Labels: map[string]*string{}, Annotations: map[string]string{}}
	for key, value := range d.Labels {
		if current, ok := pvc.Labels[key]; !ok || current != value {
			desired.Labels[key] = &value
		}
	}
	annotations := map[string]string{}
	maps.Copy(annotations, d.Annotations)
	if d.SnapshotClass != "" {
		annotations[AnnotationSnapshotClass] = d.SnapshotClass
	}
	if d.Preallocate != pvc.IsPreallocated() {
		annotations[AnnotationPreallocate] = strconv.FormatBool(d.Preallocate)
	}
	for key, value := range annotations {
		if current, ok := pvc.Annotations[key]; !ok || current != value {
			desired.Annotations[key] = value
		}
	}
	if len(desired.Labels) == 0 && len(desired.Annotations) == 0 {
		return nil
	}
	return desired.Patch()
}

// HasDirectory reports whether a VM had the disk as a directory.
func (d DiskPVC) HasDirectory() bool { return d.Annotations[AnnotationFormatted] == FormattedDirectory }

// IsFormatted reports whether a VM had the disk before, as a device or as a directory.
func (d DiskPVC) IsFormatted() bool {
	_, formatted := d.Annotations[AnnotationFormatted]
	return formatted
}

// RequestStoragePatch returns the strategic merge patch that makes the PVC request this amount, if the PVC is unchanged since it was
// read.
func RequestStoragePatch(pvc DiskPVC, amount resource.Quantity) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": amount}}},
	})
}

// RequestAttributesClassPatch returns the strategic merge patch that makes the PVC request this VolumeAttributesClass, or none for nil, if
// the PVC is unchanged since it was read.
func RequestAttributesClassPatch(pvc DiskPVC, class *string) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion},
		"spec":     map[string]any{"volumeAttributesClassName": class},
	})
}

// VolumeMode returns the PVC's volume mode, by default Filesystem.
func (d DiskPVC) VolumeMode() corev1.PersistentVolumeMode {
	if d.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *d.Spec.VolumeMode
}

// PVCSizeMiB returns the size in MiB that the PVC of a disk of diskMiB requests. A disk on a Filesystem volume is an image file,
// and the volume's filesystem needs additional space: ext4 uses about 5% for inodes and the journal, KubeVirt calculates with 6%,
// and a small volume also needs a fixed part. A Block volume needs no additional space.
func PVCSizeMiB(diskMiB int64, mode corev1.PersistentVolumeMode) int64 {
	if mode == corev1.PersistentVolumeBlock {
		return diskMiB
	}
	const percent, fixedMiB = 6, 64
	return diskMiB + (diskMiB*percent+99)/100 + fixedMiB
}

// RecordSizePatch returns the strategic merge patch that records a disk's size in MiB, if the PVC is unchanged since it was read.
func RecordSizePatch(pvc DiskPVC, sizeMiB int64) []byte {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"annotations": map[string]string{AnnotationSize: strconv.FormatInt(sizeMiB, 10)},
	})
}

// RecordedSize returns the size of the disk in MiB, in decimal.
func (d DiskPVC) RecordedSize() string { return SizeOf(d) }

// FilesystemFor returns the filesystem that is created on the disk if it is blank and attached to the VM.
func (d DiskPVC) FilesystemFor(vmPod VMPod) string {
	return cmp.Or(d.Annotations[AnnotationFilesystem], vmPod.Annotations[AnnotationFilesystem], api.Ext4)
}

// Filesystem returns the filesystem in the cloud properties of the disk, or "".
func (d DiskPVC) Filesystem() string { return d.Annotations[AnnotationFilesystem] }

// Deployment returns the name of the deployment that uses the disk, from set_disk_metadata.
func (d DiskPVC) Deployment() string { return d.Annotations[AnnotationDeployment] }

// StorageClass returns the StorageClass of the PVC, or "".
func (d DiskPVC) StorageClass() string { return valueOf(d.Spec.StorageClassName) }

// AttributesClass returns the VolumeAttributesClass that the PVC requests, or "". The volume may still have another one.
func (d DiskPVC) AttributesClass() string { return valueOf(d.Spec.VolumeAttributesClassName) }

// optional returns a pointer to the name, or nil for "".
func optional(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

func valueOf(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

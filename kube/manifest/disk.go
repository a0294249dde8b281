package manifest

import (
	"encoding/json"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Disk is a persistent disk as create_disk was asked for it.
type Disk struct {
	Name         string
	Namespace    string
	Director     string
	SizeMiB      int64
	StorageClass *string // nil: the cluster's default class
	Mode         corev1.PersistentVolumeMode
	Bind         bool // it appears as a directory, see AnnotationAttach
	AccessModes  []corev1.PersistentVolumeAccessMode
	Labels       map[string]string
	Annotations  map[string]string
	Filesystem   string
	Reserve      bool   // see AnnotationReserve
	Snapshot     string // the snapshot that it starts with the content of, or empty
	// SnapshotClass is the VolumeSnapshotClass of its own snapshots; the default one when empty.
	SnapshotClass string
}

// PVC is the disk.
func (d Disk) PVC() *corev1.PersistentVolumeClaim {
	meta := newObjectMeta(d.Name, d.Namespace, d.Director, RoleDisk)
	meta.Labels[LabelDisk] = d.Name
	for key, value := range d.Labels {
		if _, own := meta.Labels[key]; !own {
			meta.Labels[key] = value
		}
	}
	meta.Annotations = map[string]string{AnnotationSize: strconv.FormatInt(d.SizeMiB, 10)}
	if d.Bind {
		meta.Annotations[AnnotationAttach] = AttachBind
	} else {
		meta.Annotations[AnnotationFilesystem] = d.Filesystem
	}
	if d.Reserve {
		meta.Annotations[AnnotationReserve] = strconv.FormatBool(true)
	}
	if d.SnapshotClass != "" {
		meta.Annotations[AnnotationSnapshotClass] = d.SnapshotClass
	}
	for key, value := range d.Annotations {
		if _, own := meta.Annotations[key]; !own {
			meta.Annotations[key] = value
		}
	}
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      d.AccessModes,
			StorageClassName: d.StorageClass,
			VolumeMode:       new(d.Mode),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: mebibytes(PVCSizeMiB(d.SizeMiB, d.Mode, d.Bind)),
			}},
		},
	}
	if d.Snapshot != "" {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: d.Snapshot,
		}
	}
	return pvc
}

// IsSpaceReserved reports whether the disk's image file is to have all of its room.
func IsSpaceReserved(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Annotations[AnnotationReserve] == strconv.FormatBool(true)
}

// Relabel is the strategic merge patch that gives the disk's claim the labels and annotations that are asked
// for; nil when it has them. It names nothing else, so that it changes nothing that another call has changed meanwhile.
func (d Disk) Relabel(pvc *corev1.PersistentVolumeClaim) ([]byte, error) {
	desired := Metadata{Labels: map[string]*string{}, Annotations: map[string]string{}}
	for key, value := range d.Labels {
		if has, ok := pvc.Labels[key]; !ok || has != value {
			desired.Labels[key] = &value
		}
	}
	annotations := maps.Clone(d.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if d.SnapshotClass != "" {
		annotations[AnnotationSnapshotClass] = d.SnapshotClass
	}
	if d.Reserve != IsSpaceReserved(pvc) {
		annotations[AnnotationReserve] = strconv.FormatBool(d.Reserve)
	}
	for key, value := range annotations {
		if has, ok := pvc.Annotations[key]; !ok || has != value {
			desired.Annotations[key] = value
		}
	}
	if len(desired.Labels) == 0 && len(desired.Annotations) == 0 {
		return nil, nil
	}
	return desired.Patch()
}

// IsFormatted reports that the disk had a filesystem once.
func IsFormatted(pvc *corev1.PersistentVolumeClaim) bool {
	_, formatted := pvc.Annotations[AnnotationFormatted]
	return formatted
}

// RequestStorage is the strategic merge patch by which a claim asks for this much, if it is still as it was read.
func RequestStorage(pvc *corev1.PersistentVolumeClaim, amount resource.Quantity) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": amount}}},
	})
}

// VolumeMode is the claim's, which Kubernetes takes for Filesystem when it is not given.
func VolumeMode(pvc *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	if pvc.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *pvc.Spec.VolumeMode
}

// PVCSizeMiB is how much a claim asks for, in MiB, so that the disk in it has exactly its size. An
// image file needs room for the volume's own filesystem: ext4 takes some 5 % for inodes and
// journal, KubeVirt reckons with 6 %; a small volume needs a fixed part besides. A directory needs
// nothing on top.
func PVCSizeMiB(diskMiB int64, mode corev1.PersistentVolumeMode, directory bool) int64 {
	if directory || mode == corev1.PersistentVolumeBlock {
		return diskMiB
	}
	const percent, fixedMiB = 6, 64
	return diskMiB + (diskMiB*percent+99)/100 + fixedMiB
}

// RecordSize is the patch that notes a disk's size in MiB on its claim, if that is still as it was read.
func RecordSize(pvc *corev1.PersistentVolumeClaim, sizeMiB int64) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"annotations": map[string]string{AnnotationSize: strconv.FormatInt(sizeMiB, 10)},
	})
}

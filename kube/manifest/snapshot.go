package manifest

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/extension"
)

// SnapshotName is the name of a snapshot, and its CID.
func SnapshotName(uuid string) string { return "snapshot-" + uuid }

// VolumeSnapshot is a snapshot of the disk's volume, with the director's metadata on it, as on VMs and disks. Until
// FinishSnapshot it is no director's.
func VolumeSnapshot(name, director string, disk *corev1.PersistentVolumeClaim, metadata Metadata) *extension.VolumeSnapshot {
	snapshot := &extension.VolumeSnapshot{ObjectMeta: newObjectMeta(name, disk.Namespace, director, RoleSnapshot)}
	snapshot.Labels[LabelDisk], snapshot.Labels[LabelUnfinished] = disk.Name, "true"
	snapshot.Annotations = map[string]string{}
	metadata.applyTo(snapshot.Labels, snapshot.Annotations)
	snapshot.Spec.Source.PersistentVolumeClaimName = &disk.Name
	if className, ok := disk.Annotations[AnnotationSnapshotClass]; ok {
		snapshot.Spec.VolumeSnapshotClassName = &className
	}
	return snapshot
}

// FinishSnapshot is the patch for a snapshot whose name the director is about to get.
func FinishSnapshot() ([]byte, error) { return SetLabel(LabelUnfinished, nil) }

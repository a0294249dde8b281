package manifest

import (
	"bosh-kubernetes-cpi/kube/extension"
)

// SnapshotName returns the name of a VolumeSnapshot, which is the snapshot's CID.
func SnapshotName(uuid string) string { return "snapshot-" + uuid }

// VolumeSnapshot returns a snapshot of the disk's volume with the director's metadata. Until FinishSnapshotPatch, it has
// LabelIncomplete, and garbage collection deletes it if its call is interrupted.
func VolumeSnapshot(name, director string, disk DiskPVC, metadata Metadata) *extension.VolumeSnapshot {
	snapshot := &extension.VolumeSnapshot{ObjectMeta: newObjectMeta(name, disk.Namespace, director, RoleSnapshot)}
	snapshot.Labels[LabelDisk], snapshot.Labels[LabelIncomplete] = disk.Name, "true"
	snapshot.Annotations = map[string]string{}
	metadata.applyTo(snapshot.Labels, snapshot.Annotations)
	snapshot.Spec.Source.PersistentVolumeClaimName = &disk.Name
	if className, ok := disk.Annotations[AnnotationSnapshotClass]; ok {
		snapshot.Spec.VolumeSnapshotClassName = &className
	}
	return snapshot
}

// FinishSnapshotPatch returns the JSON merge patch that marks exactly this snapshot, by UID, as complete, before its call returns it to
// the director.
func FinishSnapshotPatch(snapshot *extension.VolumeSnapshot) []byte {
	return metadataPatch(map[string]any{"uid": snapshot.UID, "labels": map[string]*string{LabelIncomplete: nil}})
}

package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoleSnapshot is the value of LabelRole on a snapshot.
const RoleSnapshot = "snapshot"

// SnapshotName is the name of a snapshot, and its CID.
func SnapshotName(uuid string) string { return "snapshot-" + uuid }

// SnapshotMeta is the metadata of a disk's snapshot. Its spec is the API's of an extension, which
// package kube knows.
func SnapshotMeta(name, namespace, director, disk string) metav1.ObjectMeta {
	meta := owned(name, namespace, director, RoleSnapshot)
	meta.Labels[LabelDisk] = disk
	return meta
}

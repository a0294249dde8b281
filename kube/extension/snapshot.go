package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SnapshotGroup is the API group of the CSI snapshot controller; see
// https://kubernetes-csi.github.io/docs/snapshot-controller.html.
var SnapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// VolumeSnapshot is a snapshot of a PVC's volume.
type VolumeSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeSnapshotSpec    `json:"spec"`
	Status *VolumeSnapshotStatus `json:"status,omitempty"`
}

// VolumeSnapshotSpec is the spec of a VolumeSnapshot. Without a class, the cluster's default is used.
type VolumeSnapshotSpec struct {
	Source                  VolumeSnapshotSource `json:"source"`
	VolumeSnapshotClassName *string              `json:"volumeSnapshotClassName,omitempty"`
}

// VolumeSnapshotSource selects the PVC.
type VolumeSnapshotSource struct {
	PersistentVolumeClaimName *string `json:"persistentVolumeClaimName,omitempty"`
}

// VolumeSnapshotStatus is the status that the snapshot controller reports.
type VolumeSnapshotStatus struct {
	ReadyToUse *bool                `json:"readyToUse,omitempty"`
	Error      *VolumeSnapshotError `json:"error,omitempty"`
}

// VolumeSnapshotError is the controller's last error. The controller retries.
type VolumeSnapshotError struct {
	Message *string `json:"message,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *VolumeSnapshot) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if s.Status != nil {
		status := *s.Status
		c.Status = &status
	}
	return &c
}

// VolumeSnapshotClass selects the CSI driver that takes snapshots.
type VolumeSnapshotClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Driver string `json:"driver"`
}

// DeepCopyObject implements runtime.Object.
func (s *VolumeSnapshotClass) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SnapshotGroup is the API of https://kubernetes-csi.github.io/docs/snapshot-controller.html, which is
// an extension: a cluster may not have it.
var SnapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// VolumeSnapshot is a snapshot of a claim's volume. These are the fields that the CPI uses.
type VolumeSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeSnapshotSpec    `json:"spec"`
	Status *VolumeSnapshotStatus `json:"status,omitempty"`
}

// VolumeSnapshotSpec says what to take a snapshot of.
type VolumeSnapshotSpec struct {
	Source                  VolumeSnapshotSource `json:"source"`
	VolumeSnapshotClassName *string              `json:"volumeSnapshotClassName,omitempty"`
}

// VolumeSnapshotSource names the claim.
type VolumeSnapshotSource struct {
	PersistentVolumeClaimName *string `json:"persistentVolumeClaimName,omitempty"`
}

// VolumeSnapshotStatus is what the snapshot controller reports.
type VolumeSnapshotStatus struct {
	ReadyToUse *bool                `json:"readyToUse,omitempty"`
	Error      *VolumeSnapshotError `json:"error,omitempty"`
}

// VolumeSnapshotError is the last error; the controller tries again.
type VolumeSnapshotError struct {
	Message *string `json:"message,omitempty"`
}

// DeepCopyObject makes it a runtime.Object.
func (s *VolumeSnapshot) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if s.Status != nil {
		status := *s.Status
		c.Status = &status
	}
	return &c
}

// VolumeSnapshotClass says which driver takes snapshots. These are the fields that the CPI looks at.
type VolumeSnapshotClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Driver string `json:"driver"`
}

// DeepCopyObject makes it a runtime.Object.
func (s *VolumeSnapshotClass) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

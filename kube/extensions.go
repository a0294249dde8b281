package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"bosh-kubernetes-cpi/kube/extension"
)

// VolumeSnapshots returns the namespace's VolumeSnapshots.
func (c *Client) VolumeSnapshots() *Resource[*extension.VolumeSnapshot, *extension.List[extension.VolumeSnapshot]] {
	return NewExtension[extension.VolumeSnapshot](c, c.Namespace, extension.SnapshotGroup, "VolumeSnapshot", "volumesnapshots")
}

// DaemonSetsInAllNamespaces returns the DaemonSets of all namespaces.
func (c *Client) DaemonSetsInAllNamespaces() *Resource[*extension.DaemonSet, *extension.List[extension.DaemonSet]] {
	return NewExtension[extension.DaemonSet](c, "", extension.AppsGroup, "DaemonSet", "daemonsets")
}

// VolumeSnapshotClasses returns the cluster's VolumeSnapshotClasses.
func (c *Client) VolumeSnapshotClasses() *Resource[*extension.VolumeSnapshotClass, *extension.List[extension.VolumeSnapshotClass]] {
	return NewExtension[extension.VolumeSnapshotClass](c, "", extension.SnapshotGroup, "VolumeSnapshotClass", "volumesnapshotclasses")
}

// NewExtension returns the Resource of a kind with a type that supports JSON, but not protobuf. The namespace is "" for cluster-scoped
// kinds. Requests fail with ErrNotServed if the cluster does not have the API group.
func NewExtension[T any, P interface {
	*T
	Object
}](c *Client, namespace string, group schema.GroupVersion, kind, plural string) *Resource[P, *extension.List[T]] {
	conn := c.connectWith(runtime.ContentTypeJSON, "/apis", group, func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(group.WithKind(kind), P(new(T)))
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), &extension.List[T]{})
		return nil
	})
	conn.namespace = namespace
	return newResource[T, extension.List[T], P](conn, kind, plural)
}

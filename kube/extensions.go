package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"bosh-kubernetes-cpi/kube/extension"
)

// IPPools returns Calico's IPPools, which are cluster-scoped.
func (c *Client) IPPools() *Resource[*extension.IPPool, *extension.List[extension.IPPool]] {
	return newExtensionResource[extension.IPPool](c, "", extension.CalicoGroup, "IPPool", "ippools")
}

// IPReservations returns Calico's IPReservations, which are cluster-scoped.
func (c *Client) IPReservations() *Resource[*extension.IPReservation, *extension.List[extension.IPReservation]] {
	return newExtensionResource[extension.IPReservation](c, "", extension.CalicoGroup, "IPReservation", "ipreservations")
}

// VolumeSnapshots returns the namespace's VolumeSnapshots.
func (c *Client) VolumeSnapshots() *Resource[*extension.VolumeSnapshot, *extension.List[extension.VolumeSnapshot]] {
	return newExtensionResource[extension.VolumeSnapshot](c, c.Namespace, extension.SnapshotGroup, "VolumeSnapshot", "volumesnapshots")
}

// DaemonSetsInAllNamespaces returns the DaemonSets of all namespaces.
func (c *Client) DaemonSetsInAllNamespaces() *Resource[*extension.DaemonSet, *extension.List[extension.DaemonSet]] {
	return newExtensionResource[extension.DaemonSet](c, "", extension.AppsGroup, "DaemonSet", "daemonsets")
}

// VolumeSnapshotClasses returns the cluster's VolumeSnapshotClasses.
func (c *Client) VolumeSnapshotClasses() *Resource[*extension.VolumeSnapshotClass, *extension.List[extension.VolumeSnapshotClass]] {
	return newExtensionResource[extension.VolumeSnapshotClass](c, "", extension.SnapshotGroup, "VolumeSnapshotClass", "volumesnapshotclasses")
}

// newExtensionResource returns the Resource of a kind that package extension defines. The namespace is "" for cluster-scoped kinds.
// Requests fail with ErrNotServed if the cluster does not have the API group.
func newExtensionResource[T any, P interface {
	*T
	Object
}](c *Client, namespace string, group schema.GroupVersion, kind, plural string) *Resource[P, *extension.List[T]] {
	conn := c.connect("/apis", group, func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(group.WithKind(kind), P(new(T)))
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), &extension.List[T]{})
		return nil
	})
	conn.namespace = namespace
	return newResource[T, extension.List[T], P](conn, kind, plural)
}

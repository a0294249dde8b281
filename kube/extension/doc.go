// Package extension defines API types that are not imported from Kubernetes' modules: [IPPool] and [IPReservation] of Calico,
// [VolumeSnapshot] of the CSI snapshotter, and [DaemonSet], because k8s.io/api/apps/v1 is large. A cluster may not have Calico and
// the snapshotter. The types have only the required fields.
package extension

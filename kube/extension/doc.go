// Package extension defines the API types that the CPI uses and does not import from Kubernetes' own modules: [IPPool] and
// [IPReservation] of Calico and [VolumeSnapshot] of the CSI snapshotter, which a cluster may not have, and [DaemonSet], since
// k8s.io/api/apps/v1 is large. The types have only the fields that the CPI uses.
//
// Package kube sends and receives these objects, and package cpi/manifest builds them; this package imports neither.
package extension

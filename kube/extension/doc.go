// Package extension defines types of Kubernetes' APIs that are not imported: [VolumeSnapshot] of the CSI snapshotter, and [DaemonSet],
// because k8s.io/api/apps/v1 is large. A cluster may not have the snapshotter. The types have only the required fields.
package extension

// Package extension has the types of two API groups that a cluster may have and that Kubernetes' own modules
// have no types for: Calico's address pools, and the snapshots of the CSI snapshotter; and DaemonSets, whose own package is
// large. They have the fields that the CPI uses, and no others.
//
// Package kube sends and receives them, kube/manifest builds them; this package imports neither.
package extension

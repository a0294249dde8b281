// Package embedded runs a real Kubernetes cluster on the host: etcd, the API server, the controller manager and the scheduler, and
// optionally nodes with kubelet, containerd and Calico.
//
// The control plane alone does not require root; tests start their own. `make cluster-up` starts a whole cluster and
// `make cluster-down` stops it. All processes listen on loopback, store their files in one directory, and are stopped by process ID.
// Their programs must be in $PATH; scripts/build-tools --path prints the directories.
package embedded

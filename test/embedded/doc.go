// Package embedded runs a real Kubernetes on this machine: etcd, the API server and its companions,
// and on request nodes with kubelet, containerd and Calico.
//
// The control plane alone needs no root; tests start it for themselves. The whole cluster is what
// `make cluster-up` starts and `make cluster-down` stops. Everything listens on loopback, lives in one
// folder, and is stopped by its process id. Programs are found in $PATH, where scripts/build-tools
// --path puts them.
package embedded

// Package cpi implements BOSH's Cloud Provider Interface with Kubernetes objects: a VM is a Pod, a persistent disk a
// PersistentVolumeClaim, a stemcell a container image.
//
// Each call reads the state of the cluster and changes it toward the requested state. An interrupted call can be retried. All state
// is in the cluster: the process keeps none.
//
// This package implements the protocol (server.go, exchange.go), lists the methods (methods.go), reads the configuration
// (config.go), and contains the stemcell methods (stemcell.go, prefetch.go) and garbage collection. The packages vm, disk and
// network implement the other methods, and share the package call. vm may import disk and network, and all three import call;
// imports_test.go enforces this.
package cpi

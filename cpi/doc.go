// Package cpi implements BOSH's Cloud Provider Interface with Kubernetes objects: a VM is a Pod, a persistent disk a
// PersistentVolumeClaim, a stemcell a container image.
//
// Each call reads the state of the cluster and changes it toward the requested state. An interrupted call can be retried. All state
// is in the cluster: the process keeps none.
//
// This package only connects the parts: it implements the protocol (server.go, request.go), lists the methods (methods.go), and reads the
// configuration (config.go, and cpi_config.go for that of a director). The packages vm, disk, network and stemcell implement the methods,
// and share the package call. collect is garbage collection, and preflight checks a cluster before its first VM. The diagram in
// docs/development/architecture.md shows which package may import which.
package cpi

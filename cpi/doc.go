// Package cpi answers the calls of BOSH's Cloud Provider Interface with Kubernetes objects: a VM is a
// Pod, a persistent disk a PersistentVolumeClaim, a stemcell a container image.
//
// Each call looks at what is in the cluster, moves it toward what was asked, and can be repeated from
// any point at which it was cut short. All state is in the cluster: the process keeps none.
//
// This package is the wiring: it speaks the protocol (server.go, exchange.go), has a row for each method
// (methods.go), and reads the configuration (config.go). The methods themselves are in machine, disk and
// network; what those share is in call. Imports go one way, machine to disk and network, all three to call:
// imports_test.go sees to that.
package cpi

// Package cpi answers the calls of BOSH's Cloud Provider Interface with Kubernetes objects: a VM is a
// Pod, a persistent disk a PersistentVolumeClaim, a stemcell a container image.
//
// Each call looks at what is in the cluster, moves it toward what was asked, and can be repeated from
// any point at which it was cut short. Nothing it does restarts a machine, changes its address or
// loses its data; what would, it refuses. All state is in the cluster: the process keeps none.
//
// The methods are in the files named after what they are about: vm.go, disk.go, attachment.go,
// stemcell.go. dispatch.go and server.go speak the protocol.
package cpi

// Package call contains what the CPI's methods share: the context and the client of a request, errors with BOSH's types, strict
// decoding, helper Pods, ownership of the objects that a call creates, and waits that fail early when a dependency fails.
//
// It deals with Pods and nodes in general. VMs, disks and networks are the subject of the packages vm, disk and network, which
// import it.
package call

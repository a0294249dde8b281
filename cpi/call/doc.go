// Package call has what the CPI's methods share while they serve one request: the request itself and the
// cluster that it is about, errors as BOSH knows them, strict decoding, and waits that end when what they
// depend on fails.
//
// It knows Pods and nodes, and neither machines, disks nor networks: packages machine, disk and network know
// those, and import this one.
package call

// Package manifest builds the Kubernetes objects that stand for BOSH's machines and disks.
//
// Its functions take plain values and answer whole objects. They see no client, clock, environment
// or context, so that what the CPI puts into a cluster can be read, and tested, in one place.
package manifest

// Package manifest builds the Kubernetes objects that stand for BOSH's machines and disks, and the patches that change
// them.
//
// Its functions take plain values and return whole objects, or a strategic merge patch. They see no client, clock,
// environment or context, so that what the CPI puts into a cluster can be read, and tested, in one place. Every label,
// annotation and role has its name in names.go.
package manifest

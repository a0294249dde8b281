// Package preflight checks, before any objects are created in a cluster, whether the CPI can work there with its configuration and
// permissions. Each failed check comes with a remedy.
//
// It imports package cpi, for the configuration and for the manifests of the objects that calls create. The checks create these
// objects only in a dry run; a deep check creates Pods and deletes them. checks.go lists all checks, and the other files contain a
// group of checks each.
package preflight

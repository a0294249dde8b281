// Package cluster inspects the properties of a Kubernetes cluster that a director's manifest depends on, and creates and deletes the
// objects that a director requires.
package cluster

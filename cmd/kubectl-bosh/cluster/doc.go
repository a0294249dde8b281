// Package cluster finds out about a Kubernetes cluster what a director's manifest depends on, and makes and removes the
// objects that a director needs there.
package cluster

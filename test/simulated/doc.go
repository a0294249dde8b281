// Package simulated adds to an embedded control plane what it lacks without real nodes: nodes on which Pods run immediately, the
// termination of deleted Pods, and storage with volumes that do not exist. The API server, etcd, the controllers and the scheduler
// are real.
package simulated

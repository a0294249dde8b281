// Package simulated adds nodes and storage to an embedded control plane. Pods run immediately on its nodes, deleted Pods terminate, and
// its volumes have no data. The API server, etcd, the controllers and the scheduler are real.
package simulated

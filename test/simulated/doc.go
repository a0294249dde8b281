// Package simulated stands for what a control plane without a node lacks: nodes on which Pods run at once, the end of
// deleted Pods, and storage that makes volumes of nothing. The API server, etcd, the controllers and the scheduler are
// real.
package simulated

// Package install puts the CNI shim on a node, keeps it there, and takes it away again.
//
// It never touches the node's own network configuration. Runtimes use the first configuration in
// lexical order, so the shim's is a file of its own that sorts before: a copy of the node's, with the
// shim in the place of the first plugin and that plugin as its delegate. Every file is written beside
// its place and renamed into it, in an order in which each file finds what it needs. So there is at
// every moment one configuration or the other, complete: before, during and after an upgrade, after
// an installer that was killed, and after the shim's removal.
package install

// Package install installs the CNI shim on a node, keeps it up to date, and uninstalls it.
//
// It never changes the node's own network configuration. Runtimes use the first configuration in lexical order. The shim's
// configuration is a separate file that sorts first. It is a copy of the node's configuration in which the shim replaces the first
// plugin, and that plugin becomes the shim's delegate.
//
// Each file is written under a temporary name and renamed, after the files that it references. The node therefore always has a
// complete configuration (its own or the shim's), even during an upgrade, or if an installer is killed.
package install

// Package install installs the CNI shim on a node, keeps it up to date, and uninstalls it.
//
// It never changes the node's own network configuration. Runtimes use the first configuration in lexical order. The shim's
// configuration is a separate file that sorts first: a copy of the node's configuration in which the shim replaces the first plugin,
// with that plugin as its delegate. Each file is written under a temporary name and renamed, after the files that it references. So
// the node always has a complete configuration, its own or the shim's: during an upgrade, after an installer was killed, and after
// the shim was uninstalled.
package install

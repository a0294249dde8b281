// Package proxy is a SOCKS5 proxy to the machines of a namespace, and to the Services that they are behind. Connections
// go through the API server's port-forward: who can reach that needs no route to any Pod.
package proxy

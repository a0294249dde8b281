// Package proxy is a SOCKS5 proxy to the VMs of a namespace and to the Services in front of them. Connections use port-forwarding of
// the API server, and so require no network route to Pods.
package proxy

// Package proxy is a SOCKS5 proxy to the VMs of a namespace and to the Services in front of them. Connections use the API server's
// port forwarding, so they require no network route to Pods.
package proxy

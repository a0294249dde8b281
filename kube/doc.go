// Package kube applies objects to a Kubernetes API server and waits for what becomes of them.
//
// It knows Pods, Secrets, claims and a few extensions, and nothing of BOSH's protocol. Every call takes
// a context, survives a short outage of the API server, and returns an *Error whose kind the caller
// can test. It builds no objects (package manifest does), caches nothing, and never runs discovery.
package kube

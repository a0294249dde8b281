// Package kube applies objects to a Kubernetes API server and waits for what becomes of them.
//
// It knows Pods, PodTemplates, Secrets, Services, claims, budgets, nodes and a few extensions, and nothing of BOSH's
// protocol. Every call takes a context, survives a short outage of the API server, and returns an *Error whose kind
// the caller can test. What can be read off a Pod, a node or a claim without a request is in a file of its name.
//
// It builds no objects (package manifest does), caches nothing, and never runs discovery.
package kube

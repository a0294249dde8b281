// Package kube sends requests to a Kubernetes API server, and waits until objects reach a state.
//
// A [Client] has a [Resource] for each supported kind of object. Its methods get, list, create, patch, delete and watch objects.
// They take a context, and retry while the API server is unreachable. A failed request returns an [*Error]; errors.Is compares
// its kind with the Err variables of this package.
//
// Functions such as [NodeLost], [WaitsForNode] and [VolumeLimitExceeded], and types such as [PodStartup], interpret Pods, PVCs,
// nodes and events. They send no requests.
//
// The package builds no objects, caches nothing and does not use API discovery. It knows only Kubernetes, not its callers.
package kube

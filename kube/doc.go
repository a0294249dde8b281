// Package kube sends requests to a Kubernetes API server, and waits until objects reach a state.
//
// A [Client] has a [Resource] for each kind of object that the CPI uses: get, list, create, patch, delete, watch. Requests take
// a context and are repeated while the API server cannot be reached. A failed request returns an [*Error]; errors.Is compares
// its kind with the Err variables of this package.
//
// Functions such as [NodeLost], [WaitsForNode] and [VolumeLimitExceeded], and types such as [PodStartup], interpret Pods,
// PVCs, nodes and events that the caller has already read. They send no requests.
//
// The package builds no objects (package manifest does), caches nothing, uses no API discovery, and does not know BOSH's CPI
// protocol.
package kube

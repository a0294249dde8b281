package call

import (
	"context"
	"log/slog"
	"time"

	"bosh-kubernetes-cpi/kube"
)

// CleanupTimeout limits the cleanup after a failed call. The deadline of the call itself may have passed by then.
const CleanupTimeout = time.Minute

// Call is a request that is being served. It contains the context because both have the same lifetime.
type Call struct {
	// Ctx ends at the deadline of the method, when the caller has gone, or when the process is terminated.
	Ctx context.Context
	// Client sends requests to the cluster of this call.
	*kube.Client
	// ID returns the ID of this call. A repeated call with the same request has another ID. Few calls need one, so it is generated
	// on the first use.
	ID func() string
	// Director is the UUID of the director that sent the request.
	Director string
	// Subject is the object of the Event that the call creates; nil for a call that creates none.
	Subject *Subject
	// PodOptions apply to all Pods that the call creates.
	PodOptions PodOptions
	// Log is shown in the CPI log of the director's task.
	Log *slog.Logger
}

// WithTimeout returns a copy of the call that ends with the call, or after limit if that is earlier.
func (c *Call) WithTimeout(limit time.Duration) (*Call, context.CancelFunc) {
	bounded := *c
	var cancel context.CancelFunc
	bounded.Ctx, cancel = context.WithTimeout(c.Ctx, limit)
	return &bounded, cancel
}

// Detached returns a copy of the call for cleanup: it does not end with the call, but after limit.
func (c *Call) Detached(limit time.Duration) (*Call, context.CancelFunc) {
	detached := *c
	var cancel context.CancelFunc
	detached.Ctx, cancel = context.WithTimeout(context.WithoutCancel(c.Ctx), limit)
	return &detached, cancel
}

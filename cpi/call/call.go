package call

import (
	"context"
	"log/slog"
	"time"

	"bosh-kubernetes-cpi/kube"
)

// CleanupTimeout bounds what is done after a call has failed, when its own time may be over.
const CleanupTimeout = time.Minute

// Call is one request on its way. It lives as long as the request, so that it may hold the context.
type Call struct {
	// Ctx ends when the caller's patience does, or the process is told to end.
	Ctx context.Context
	// Client is the cluster that the request is about.
	*kube.Client
	// ID returns what tells this call from every other, a repeated one with the same request too. Few calls need it,
	// and those pay for the random number.
	ID func() string
	// Director is the UUID of the director that sent the request.
	Director string
	// Subject is what the call turns out to be about, for the Event that it leaves; nil for one that leaves none.
	Subject *Subject
	// PodOptions say what the Pods that the call makes carry for others.
	PodOptions PodOptions
	// Log gets what the director keeps in the task's CPI log.
	Log *slog.Logger
}

// WithTimeout returns the call with no more than this much of its time.
func (c *Call) WithTimeout(limit time.Duration) (*Call, context.CancelFunc) {
	bounded := *c
	var cancel context.CancelFunc
	bounded.Ctx, cancel = context.WithTimeout(c.Ctx, limit)
	return &bounded, cancel
}

// Detached returns the call with this much time of its own, for what has to be done after the call's is over.
func (c *Call) Detached(limit time.Duration) (*Call, context.CancelFunc) {
	detached := *c
	var cancel context.CancelFunc
	detached.Ctx, cancel = context.WithTimeout(context.WithoutCancel(c.Ctx), limit)
	return &detached, cancel
}

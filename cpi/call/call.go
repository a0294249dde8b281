package call

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// CleanupTimeout limits the cleanup after a failed call, which may run past the call's own deadline.
const CleanupTimeout = time.Minute

// Call is a request being served. It contains the context, because both have the same lifetime.
type Call struct {
	// Ctx ends at the method's deadline, when the caller exits, or when the process is terminated.
	Ctx context.Context
	// Client sends requests to the cluster of this call.
	*kube.Client
	// ID is the ID of this call; see NewID. A retried call has another ID.
	ID string
	// Started is the time at which the call started, with the monotonic time.
	Started time.Time
	// Director is the UUID of the director that sent the request.
	Director string
	// Subject is the object of the call's Event, or nil if the call creates no Event.
	Subject *Subject
	// PodOptions apply to all Pods that the call creates.
	PodOptions PodOptions
	// NodeImage is the image of bosh-node for the Pods that the call creates.
	NodeImage stemcell.NodeImage
	// Log is shown in the CPI log of the director's task.
	Log *slog.Logger
}

// NewID returns a unique ID for a call; see manifest.AnnotationCall.
func NewID() string { return uuid.NewString() }

// WithTimeout returns a copy of the call that ends after limit, or with the call if that ends earlier.
func (c *Call) WithTimeout(limit time.Duration) (*Call, context.CancelFunc) {
	bounded := *c
	var cancel context.CancelFunc
	bounded.Ctx, cancel = context.WithTimeout(c.Ctx, limit)
	return &bounded, cancel
}

// Detached returns a copy of the call for cleanup, which outlives the call and ends after limit.
func (c *Call) Detached(limit time.Duration) (*Call, context.CancelFunc) {
	detached := *c
	var cancel context.CancelFunc
	detached.Ctx, cancel = context.WithTimeout(context.WithoutCancel(c.Ctx), limit)
	return &detached, cancel
}

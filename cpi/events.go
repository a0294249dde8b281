package cpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// EventOptions configures the Events that calls create in the cluster.
type EventOptions struct {
	// Enabled makes each call that changes a VM, a disk or a snapshot create an Event for it.
	Enabled bool `json:"enabled"`
}

// eventReasons are the reasons of a method's Events. They are empty if the method creates no Events.
type eventReasons struct {
	success string // reason of the Event of a successful call
	action  string // with the suffix Failed, or Rejected for a disk that is in use
}

// forResult returns the reason for the result of a call.
func (r eventReasons) forResult(callErr error) string {
	switch {
	case callErr == nil:
		return r.success
	case call.CodeDiskInUse.Is(call.AsBOSHError(callErr).WithCode()): // a program on the node may have returned the code
		return r.action + "Rejected"
	}
	return r.action + "Failed"
}

// unreachableErrs are the errors after which the request for an Event would also fail.
var unreachableErrs = []error{kube.ErrUnreachable, kube.ErrNotServed, kube.ErrUnauthorized, kube.ErrNoCredentials}

// recordCallEvent creates an Event about the result of a call, for the object of the call. It takes at most one second, even if the
// call timed out. If it fails, it only logs the error at debug.
func (s *requestSession) recordCallEvent(ctx context.Context, method string, took time.Duration, callErr error) {
	reasons := methods[method].event
	matches := func(kind error) bool { return errors.Is(callErr, kind) }
	if reasons.success == "" || !s.config.Events.Enabled || s.Subject.Object.Name == "" || slices.ContainsFunc(unreachableErrs, matches) {
		return
	}
	event := manifest.Event{
		About:    s.Subject.Object,
		Director: s.Director,
		Call:     s.ID,
		Reason:   reasons.forResult(callErr),
		Message:  s.eventMessage(method, took, callErr),
		Warning:  callErr != nil,
		At:       metav1.Now(),
	}
	if err := s.RecordEvent(context.WithoutCancel(ctx), event.Object()); err != nil {
		s.Log.Debug("cannot create event", "error", err)
	}
}

// eventMessage describes the result of the call. For a failed call, it contains the error message of the response.
func (s *requestSession) eventMessage(method string, took time.Duration, callErr error) string {
	description := method
	if s.Subject.Detail != "" {
		description += " (" + s.Subject.Detail + ")"
	}
	if callErr != nil {
		return fmt.Sprintf("%s failed after %.1f s: %s", description, took.Seconds(), call.AsBOSHError(callErr).WithCode())
	}
	return fmt.Sprintf("%s took %.1f s", description, took.Seconds())
}

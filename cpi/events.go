package cpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// EventOptions say whether calls leave Events in the cluster.
type EventOptions struct {
	// Enabled has each call that changes a machine, a disk or a snapshot leave an Event on it.
	Enabled bool `json:"enabled"`
}

// methodReasons are those of a method's Events.
type methodReasons struct {
	success string // of a call that has succeeded
	action  string // what has Failed, or was Refused for the sake of who uses the disk
}

// eventReasons are those of all methods that leave Events. Questions leave none, nor does what changes metadata alone,
// stemcells, which are in no cluster, and networks, which belong to no namespace.
var eventReasons = map[string]methodReasons{
	"create_vm":       {"Created", "Create"},
	"delete_vm":       {"Deleted", "Delete"},
	"reboot_vm":       {"Rebooted", "Reboot"},
	"attach_disk":     {"DiskAttached", "Attach"},
	"detach_disk":     {"DiskDetached", "Detach"},
	"create_disk":     {"Created", "Create"},
	"delete_disk":     {"Deleted", "Delete"},
	"resize_disk":     {"DiskResized", "Resize"},
	"update_disk":     {"DiskUpdated", "Update"},
	"snapshot_disk":   {"SnapshotTaken", "Snapshot"},
	"delete_snapshot": {"Deleted", "Delete"},
}

// forResult returns the reason for what has become of the call.
func (r methodReasons) forResult(callErr error) string {
	switch {
	case callErr == nil:
		return r.success
	case call.IsInUse(callErr):
		return r.action + "Refused"
	}
	return r.action + "Failed"
}

// unreachableErrs are the failures after which no request arrives.
var unreachableErrs = []error{kube.ErrUnreachable, kube.ErrNotServed, kube.ErrUnauthorized, kube.ErrNoCredentials}

// recordCallEvent leaves the Event of a call that has ended, on the object that the call was about. Whether it can does not matter
// to the call, which waits for it a second at the most, when its own time is over too.
func (s *requestSession) recordCallEvent(ctx context.Context, method string, took time.Duration, callErr error) {
	reasons, hasReasons := eventReasons[method]
	matches := func(kind error) bool { return errors.Is(callErr, kind) }
	if !hasReasons || !s.config.Events.Enabled || s.Subject.Object.Name == "" || slices.ContainsFunc(unreachableErrs, matches) {
		return
	}
	event := manifest.Event{
		About:    s.Subject.Object,
		Director: s.Director,
		Call:     s.ID(),
		Reason:   reasons.forResult(callErr),
		Message:  s.eventMessage(method, took, callErr),
		Warning:  callErr != nil,
		At:       metav1.Now(),
	}
	if err := s.RecordEvent(context.WithoutCancel(ctx), event.Object()); err != nil {
		s.Log.Debug("no Event was left", "error", err)
	}
}

// eventMessage says what has become of the call, in the words of its answer.
func (s *requestSession) eventMessage(method string, took time.Duration, callErr error) string {
	description := method
	if s.Subject.Detail != "" {
		description += " (" + s.Subject.Detail + ")"
	}
	if callErr != nil {
		return fmt.Sprintf("%s failed after %.1f s: %s", description, took.Seconds(), call.AsBOSH(callErr))
	}
	return fmt.Sprintf("%s took %.1f s", description, took.Seconds())
}

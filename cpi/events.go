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

// reasons are those of a method's Events.
type reasons struct {
	done   string // of a call that has succeeded
	action string // what has Failed, or was Refused for the sake of who uses the disk
}

// eventReasons are those of all methods that leave Events. Questions leave none, nor does what changes metadata alone,
// stemcells, which are in no cluster, and networks, which belong to no namespace.
var eventReasons = map[string]reasons{
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

// of returns the reason for what has become of the call.
func (r reasons) of(failed error) string {
	switch {
	case failed == nil:
		return r.done
	case call.IsInUse(failed):
		return r.action + "Refused"
	}
	return r.action + "Failed"
}

// mute are the failures after which no request arrives.
var mute = []error{kube.ErrUnreachable, kube.ErrNotServed, kube.ErrUnauthorized, kube.ErrNoCredentials}

// leaveEvent leaves the Event of a call that has ended, on the object that the call was about. Whether it can does not matter
// to the call, which waits for it a second at the most, when its own time is over too.
func (s *session) leaveEvent(ctx context.Context, method string, took time.Duration, failed error) {
	reasons, leaves := eventReasons[method]
	unheard := func(kind error) bool { return errors.Is(failed, kind) }
	if !leaves || !s.config.Events.Enabled || s.Subject.Object.Name == "" || slices.ContainsFunc(mute, unheard) {
		return
	}
	event := manifest.Event{
		About: s.Subject.Object, Director: s.Director, Call: s.ID(), Reason: reasons.of(failed), Message: s.eventMessage(method, took, failed),
		Warning: failed != nil, At: metav1.Now(),
	}
	if err := s.Record(context.WithoutCancel(ctx), event.Object()); err != nil {
		s.Log.Debug("no Event was left", "error", err)
	}
}

// eventMessage says what has become of the call, in the words of its answer.
func (s *session) eventMessage(method string, took time.Duration, failed error) string {
	what := method
	if s.Subject.Detail != "" {
		what += " (" + s.Subject.Detail + ")"
	}
	if failed != nil {
		return fmt.Sprintf("%s failed after %.1f s: %s", what, took.Seconds(), call.AsBOSH(failed))
	}
	return fmt.Sprintf("%s took %.1f s", what, took.Seconds())
}

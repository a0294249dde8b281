package call

import (
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Two processes may serve the same request: a director that loses the process of a call retries the call, while the first process
// may still run. Therefore each object that a failed call deletes has an annotation with the ID of the call that owns the object
// (manifest.AnnotationCall). A retried call adopts the existing objects. If the first call then fails, it does not delete them.

// Decision is what EnsureOwned does with an existing object.
type Decision int

const (
	// Replace removes the object, and creates it again.
	Replace Decision = iota
	// Adopt makes this call the owner of the object.
	Adopt
	// Share keeps the object without adopting it. The call that owns it does not delete it either.
	Share
)

// AdoptIf returns Adopt if the condition is true, and otherwise Replace.
func AdoptIf(condition bool) Decision {
	if condition {
		return Adopt
	}
	return Replace
}

// Outcome is what EnsureOwned did.
type Outcome string

// Outcomes of EnsureOwned. A created object may replace another one. This call owns created and adopted objects.
const (
	Created Outcome = "created" // also if the response to the request was lost
	Adopted Outcome = "adopted"
	Shared  Outcome = "shared"
)

// EnsureOwned creates the object with this call as its owner. If an object of this name exists, decide returns what to do with it. To
// replace it, EnsureOwned calls remove, which deletes it, or waits until another client did.
//
// If the call ends during a request, the request may have succeeded: EnsureOwned then returns the object together with the error, if this
// call owns it. The caller deletes it, as after a later error.
func EnsureOwned[T kube.Object, L runtime.Object](
	c *Call, resource *kube.Resource[T, L], desired T, decide func(existing T) Decision, remove func(existing T) error,
) (object T, outcome Outcome, err error) {

	annotations := map[string]string{}
	maps.Copy(annotations, desired.GetAnnotations())
	annotations[manifest.AnnotationCall] = c.ID
	desired.SetAnnotations(annotations)
	var kept T
	changed := false // since it was read
	object, created, err := resource.Ensure(c.Ctx, desired, func(existing T) (bool, error) {
		decision := decide(existing)
		kept, changed = existing, false
		switch {
		case decision == Replace:
			return false, nil
		case c.Owns(existing):
			outcome = Created
			return true, nil
		case decision == Share || existing.GetDeletionTimestamp() != nil:
			outcome = Shared
			return true, nil
		}
		adopted, err := resource.Patch(c.Ctx, existing.GetName(), manifest.AdoptPatch(existing, c.ID))
		if changed = errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNotFound); changed {
			return false, nil
		}
		kept, outcome = adopted, Adopted
		return true, err
	}, func(existing T) error {
		if changed {
			return nil // decide again
		}
		return remove(existing)
	})
	if err != nil && c.Ctx.Err() != nil {
		object, created = findOwned(c, resource, desired.GetName())
	}
	switch {
	case created:
		return object, Created, err
	case err != nil:
		return object, "", err
	}
	return kept, outcome, nil
}

// findOwned returns the object of this name if this call, which has ended, owns it.
func findOwned[T kube.Object, L runtime.Object](c *Call, resource *kube.Resource[T, L], name string) (object T, owned bool) {
	detached, cancel := c.Detached(CleanupTimeout)
	defer cancel()
	found, err := resource.Get(detached.Ctx, name)
	if err != nil || !c.Owns(found) {
		return object, false
	}
	return found, true
}

// Owns reports whether this call created the object, or was the last to adopt it.
func (c *Call) Owns(object kube.Object) bool {
	return manifest.CallOf(object) == c.ID
}

// ClockTolerance is the accuracy of a difference between the start of a call and LastWritten. Both are accurate to a second.
const ClockTolerance = 2 * time.Second

// StartedBeforeOwner reports whether a call wrote the object after this call started. Then this call may be a late one, for which the
// director no longer waits, and the object may be of a later call.
//
// Both times are of the API server's clock, because the clocks of hosts may be wrong. A write less than ClockTolerance after the start
// counts as earlier, so that a call never waits for an object that was created shortly before. If it really is later, a director gave up
// a call and made the next one within this time. The next call then fails if this one deletes its object, and can be retried.
func (c *Call) StartedBeforeOwner(object metav1.Object) bool {
	return c.TimeFromStart(LastWritten(object)) > ClockTolerance
}

// TimeFromStart returns how long after the start of this call a time of the API server's clock is: it is negative before the start. It is
// accurate to ClockTolerance, and requires that this call received a response.
func (c *Call) TimeFromStart(serverTime time.Time) time.Duration {
	return serverTime.Sub(c.ServerTime(c.Started))
}

// LastWritten returns when a call created, adopted or changed the object, by the API server's clock.
func LastWritten(object metav1.Object) time.Time {
	written := object.GetCreationTimestamp().Time
	for _, entry := range object.GetManagedFields() {
		// The API server takes the manager from the user agent. The entry of a subresource is not a change of the object itself.
		if entry.Manager == manifest.ManagedBy && entry.Subresource == "" && entry.Time != nil && entry.Time.After(written) {
			written = entry.Time.Time
		}
	}
	return written
}

// Deletion is what DeleteIfOwned did.
type Deletion string

// Outcomes of DeleteIfOwned.
const (
	Kept    Deletion = "kept"    // by the decision, or because another call owns the object
	Deleted Deletion = "deleted" // in the state for which keep returned false; also if the response was lost
	Gone    Deletion = "gone"    // the object no longer exists, or is being deleted: another client may have deleted it in a later state
)

// DeleteIfOwned deletes the object if this call still owns it and keep returns false for its current state. If the object changes
// in the meantime, for example its status, DeleteIfOwned decides again.
func DeleteIfOwned[T kube.Object, L runtime.Object](
	c *Call,
	resource *kube.Resource[T, L],
	object T,
	keep func(current T) bool,
) (Deletion, error) {
	for {
		current, err := resource.Get(c.Ctx, object.GetName())
		switch {
		case errors.Is(err, kube.ErrNotFound), err == nil && current.GetUID() != object.GetUID():
			return Gone, nil
		case err != nil:
			return Kept, err
		case !c.Owns(current), keep(current):
			return Kept, nil
		}
		switch deletion, err := resource.DeleteInState(c.Ctx, current); {
		case err == nil && deletion == kube.DeletedLater:
			return Gone, nil
		case err == nil:
			return Deleted, nil
		case !errors.Is(err, kube.ErrConflict):
			return Kept, err
		}
	}
}

// NeverKeep is a keep function for DeleteIfOwned that returns false.
func NeverKeep[T kube.Object](T) bool { return false }

// DeletePodIfOwned is DeleteIfOwned for a Pod. Unless the Pod is kept, it waits until the node stops the Pod.
func (c *Call) DeletePodIfOwned(pod *corev1.Pod, keep func(current *corev1.Pod) bool) (Deletion, error) {
	deletion, err := DeleteIfOwned(c, c.Pods, pod, keep)
	if deletion == Kept || err != nil {
		return deletion, err
	}
	return deletion, c.WaitForDeletion(pod)
}

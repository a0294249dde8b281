package call

import (
	"errors"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Two processes may serve the same request: a director repeats a call whose process it has lost, and that process may go
// on. So all that a call creates and removes again when it fails carries the call that owns it (manifest.AnnotationCall).
// A repeated call adopts what it finds; the first one then fails without removing it.

// Verdict is what becomes of an object that exists, where a call would create its own.
type Verdict int

const (
	// Retry means that the object is gone, or about to be: it is created again.
	Retry Verdict = iota
	// Adopt makes the object this call's own.
	Adopt
	// Share leaves it to the call that owns it: that one does not remove it either.
	Share
)

// AdoptIf are the verdicts of a judge that knows two: the object is adopted, or is not kept.
func AdoptIf[T Object](judge func(existing T) (keep bool, err error)) func(existing T) (Verdict, error) {
	return func(existing T) (Verdict, error) {
		keep, err := judge(existing)
		if keep {
			return Adopt, err
		}
		return Retry, err
	}
}

// EnsureOwned creates the object as this call's own. An object of its name that exists is for judge. created reports that
// this call created it, even if the answer to that request was lost.
func EnsureOwned[T Object, L runtime.Object](
	c *Call, resource *kube.Resource[T, L], desired T, judge func(existing T) (Verdict, error)) (object T, created bool, err error) {

	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[manifest.AnnotationCall] = c.ID()
	desired.SetAnnotations(annotations)
	var kept T
	object, created, err = resource.Ensure(c.Ctx, desired, func(existing T) (bool, error) {
		verdict, err := judge(existing)
		kept = existing
		if err != nil || verdict == Retry {
			return false, err
		}
		if verdict == Share || c.Owns(existing) || existing.GetDeletionTimestamp() != nil {
			return true, nil
		}
		kept, err = adoptObject(c, resource, existing)
		if errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNotFound) {
			return false, nil // it has changed since: judge it again
		}
		return true, err
	})
	if err != nil || created {
		return object, created, err
	}
	return kept, c.Owns(object), nil
}

// Owns reports whether this call has created the object, or was the last to adopt it.
func (c *Call) Owns(object Object) bool {
	return object.GetAnnotations()[manifest.AnnotationCall] == c.ID()
}

// StartTime returns when the call that owns the object has begun, by the clock of the machine on which it ran; zero for an object
// that no call owns.
func StartTime(object metav1.Object) time.Time {
	id, err := uuid.Parse(object.GetAnnotations()[manifest.AnnotationCall])
	if err != nil || id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

// adoptObject makes the object this call's own, unless it has changed since it was read: that is kube.ErrConflict.
func adoptObject[T Object, L runtime.Object](c *Call, resource *kube.Resource[T, L], object T) (T, error) {
	patch, err := manifest.Adopt(object, c.ID())
	if err != nil {
		return object, err
	}
	return resource.Patch(c.Ctx, object.GetName(), patch)
}

// DeleteIfOwned deletes the object if this call still owns it, and keep does not keep it as it is now; what others report of it
// meanwhile does not matter. mine is false for an object that stays, and for one that is gone.
func DeleteIfOwned[T Object, L runtime.Object](
	c *Call,
	resource *kube.Resource[T, L],
	object T,
	keep func(now T) bool,
) (deleted bool, err error) {
	for {
		now, err := resource.Get(c.Ctx, object.GetName())
		switch {
		case errors.Is(err, kube.ErrNotFound), err == nil && now.GetUID() != object.GetUID():
			return false, nil
		case err != nil:
			return false, err
		case !c.Owns(now), keep(now):
			return false, nil
		}
		if err = resource.DeleteUnchanged(c.Ctx, now); !errors.Is(err, kube.ErrConflict) {
			return err == nil, err
		}
	}
}

// NeverKeep keeps nothing: see DeleteOwn.
func NeverKeep[T Object](T) bool { return false }

// DeletePodIfOwned is DeleteOwn of a Pod, and waits until its node has stopped it. gone reports that no Pod of this UID remains.
func (c *Call) DeletePodIfOwned(pod *corev1.Pod, keep func(now *corev1.Pod) bool) (gone bool, err error) {
	deleted, err := DeleteIfOwned(c, c.Pods, pod, keep)
	if err != nil {
		return false, err
	}
	if deleted {
		return true, c.WaitForDeletion(pod)
	}
	now, err := c.Pods.Get(c.Ctx, pod.Name)
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	return err == nil && now.UID != pod.UID, err
}

// EnsureHelperPod is EnsureOwned for a Pod that does something for a VM or a disk.
func (c *Call) EnsureHelperPod(
	desired *corev1.Pod, judge func(existing *corev1.Pod) (keep bool, err error)) (pod *corev1.Pod, created bool, err error) {

	return EnsureOwned(c, c.Pods, c.PodOptions.ApplyToHelperPod(desired), AdoptIf(judge))
}

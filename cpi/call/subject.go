package call

import (
	corev1 "k8s.io/api/core/v1"
)

// Subject is what a call is about.
type Subject struct {
	// Object is the machine's Pod, the disk's claim or the snapshot, as it was last; zero as long as it is not known.
	Object corev1.ObjectReference
	// Detail names what else the call is about, as the disk that is attached to a machine.
	Detail string
}

// SetSubject says which object the call is about. A later one takes the place of an earlier one, as when a machine's Pod is
// made again.
func (c *Call) SetSubject(object corev1.ObjectReference) {
	if c.Subject != nil {
		c.Subject.Object = object
	}
}

// SetDetail says what else the call is about.
func (c *Call) SetDetail(detail string) {
	if c.Subject != nil {
		c.Subject.Detail = detail
	}
}

// OwnerOf refers to the first owner of the Pod: of an attachment its machine's Pod, or the PodTemplate that this is made from.
// Of a Pod without one it is zero.
func OwnerOf(pod *corev1.Pod) corev1.ObjectReference {
	if len(pod.OwnerReferences) == 0 {
		return corev1.ObjectReference{}
	}
	owner := pod.OwnerReferences[0]
	return corev1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}
}

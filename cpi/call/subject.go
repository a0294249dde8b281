package call

import (
	corev1 "k8s.io/api/core/v1"
)

// Subject is the object of the Event that a call creates.
type Subject struct {
	// Object is the latest VM Pod, PVC or VolumeSnapshot that the call changes. It is zero until it is known.
	Object corev1.ObjectReference
	// Detail is shown in the Event's message, for example the disk that is attached to a VM.
	Detail string
}

// SetSubject sets the object of the call's Event. It replaces an earlier object, for example when the Pod of a VM is recreated.
func (c *Call) SetSubject(object corev1.ObjectReference) {
	if c.Subject != nil {
		c.Subject.Object = object
	}
}

// SetDetail sets the detail in the message of the call's Event.
func (c *Call) SetDetail(detail string) {
	if c.Subject != nil {
		c.Subject.Detail = detail
	}
}

package manifest

import (
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxEventMessage is Kubernetes' limit for the message of an Event, in bytes.
const maxEventMessage = 1024

// Event describes an Event about the result of a call, for the object that the call changed.
type Event struct {
	About    corev1.ObjectReference
	Director string
	Call     string // ID of the call, part of the name
	Reason   string // in CamelCase
	Message  string // truncated to Kubernetes' limit
	Warning  bool   // the call failed
	At       metav1.Time
}

// Object returns the Event, in the form of client-go's recorder. A call has at most one Event, because the name contains the call's
// ID.
func (e Event) Object() *corev1.Event {
	eventType := corev1.EventTypeNormal
	if e.Warning {
		eventType = corev1.EventTypeWarning
	}
	return &corev1.Event{
		ObjectMeta:          newObjectMeta(e.About.Name+"."+e.Call, e.About.Namespace, e.Director, RoleEvent),
		InvolvedObject:      e.About,
		Reason:              e.Reason,
		Message:             truncate(e.Message, maxEventMessage),
		Source:              corev1.EventSource{Component: ManagedBy},
		ReportingController: ManagedBy,
		FirstTimestamp:      e.At,
		LastTimestamp:       e.At,
		Count:               1,
		Type:                eventType,
	}
}

// truncate returns at most limit bytes of s, in whole characters. A truncated string ends with an ellipsis.
func truncate(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	end := limit - len(ellipsis)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

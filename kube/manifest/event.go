package manifest

import (
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxEventMessage is how many bytes Kubernetes takes as an event's message.
const maxEventMessage = 1024

// Event is what a call leaves on the object that it was about.
type Event struct {
	About    corev1.ObjectReference
	Director string
	Call     string // what tells the call from every other
	Reason   string // in CamelCase
	Message  string // cut to what Kubernetes takes
	Warning  bool   // the call failed
	At       metav1.Time
}

// Object is the Event, in the form of client-go's recorder. A call has one, with a name of its own.
func (e Event) Object() *corev1.Event {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
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
		Type:                kind,
	}
}

// truncate returns no more than this many bytes of the text, in whole characters. What it leaves out, it marks.
func truncate(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	end := limit - len(mark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

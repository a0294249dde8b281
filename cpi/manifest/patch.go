package manifest

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdoptPatch returns the strategic merge patch that makes the call the owner of another call's object, if the object is unchanged since
// it was read.
func AdoptPatch(object metav1.Object, call string) []byte {
	return metadataPatch(map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": map[string]string{AnnotationCall: call},
	})
}

// PodAnnotationsPatch returns the strategic merge patch that sets annotations of exactly this Pod, by UID.
func PodAnnotationsPatch(pod VMPod, annotations map[string]string) []byte {
	return metadataPatch(map[string]any{"uid": pod.UID, "annotations": annotations})
}

func metadataPatch(metadata any) []byte { return encode(map[string]any{"metadata": metadata}) }

// encode returns the JSON encoding of a value that consists of strings, numbers, values decoded from JSON, and types of Kubernetes.
func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // impossible: these types always have an encoding
	}
	return raw
}

// jsonPatch is a JSON patch (RFC 6902) of string values. Callers do not escape the keys in paths: see jsonPointer.
type jsonPatch []jsonOperation

type jsonOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// test requires this value at path. With "", it requires that path has no value.
func (p *jsonPatch) test(path, value string) {
	operation := jsonOperation{Operation: "test", Path: jsonPointer(path)}
	if value != "" {
		operation.Value = value
	}
	*p = append(*p, operation)
}

func (p *jsonPatch) add(path, value string) {
	*p = append(*p, jsonOperation{"add", jsonPointer(path), value})
}

// remove removes the value at path if it is this one. With "", it only requires that path has no value.
func (p *jsonPatch) remove(path, value string) {
	p.test(path, value)
	if value == "" {
		return
	}
	*p = append(*p, jsonOperation{Operation: "remove", Path: jsonPointer(path)})
}

// jsonPointer returns the path as a JSON pointer (RFC 6901): the first three slashes are separators, the others belong to the key.
func jsonPointer(path string) string {
	const separators = 3 // "", "metadata", "labels", KEY
	parts := strings.SplitN(path, "/", separators+1)
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	return strings.Join(parts, "/")
}

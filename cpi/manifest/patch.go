package manifest

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdoptPatch returns the strategic merge patch that makes the call the owner of another call's object, if the object is unchanged since
// it was read.
func AdoptPatch(object metav1.Object, call string) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": map[string]string{AnnotationCall: call},
	})
}

// PodAnnotationsPatch returns the strategic merge patch that sets annotations of exactly this Pod, by UID.
func PodAnnotationsPatch(pod VMPod, annotations map[string]string) ([]byte, error) {
	return metadataPatch(map[string]any{"uid": pod.UID, "annotations": annotations})
}

func metadataPatch(metadata any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": metadata})
}

package cpi

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// kubernetesObject is any of the cluster's objects.
type kubernetesObject interface {
	runtime.Object
	metav1.Object
}

// putMetadata puts the metadata on the object of that name, and answers it.
func putMetadata[T kubernetesObject, L runtime.Object](ctx context.Context, among *kube.Resource[T, L], name string, metadata map[string]any) (T, error) {
	var none T
	described, err := asMetadata(metadata)
	if err != nil {
		return none, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": described})
	if err != nil {
		return none, fmt.Errorf("metadata: %w", err)
	}
	return among.Patch(ctx, name, types.MergePatchType, patch)
}

// description is the part of a patch that puts metadata on an object.
type description struct {
	Labels      map[string]*string `json:"labels"`
	Annotations map[string]string  `json:"annotations"`
}

// asMetadata puts the director's metadata into labels where Kubernetes allows the value, and into
// annotations always. A label that can no longer hold its value is removed.
func asMetadata(metadata map[string]any) (description, error) {
	all, err := json.Marshal(metadata)
	if err != nil {
		return description{}, fmt.Errorf("metadata: %w", err)
	}
	labels := map[string]*string{}
	annotations := map[string]string{manifest.AnnotationMetadata: string(all)}
	for key, value := range metadata {
		text, isText := value.(string)
		if !isText {
			raw, err := json.Marshal(value)
			if err != nil {
				return description{}, fmt.Errorf("metadata: %w", err)
			}
			text = string(raw)
		}
		name, ok := manifest.LabelKey(key)
		if manifest.Reserved(name) {
			name, ok = manifest.LabelKey("tag-" + key)
		}
		if !ok {
			continue // manifest.AnnotationMetadata has it
		}
		annotations[name] = text
		if label, ok := manifest.LabelValue(text); ok {
			labels[name] = &label
		} else {
			labels[name] = nil
		}
	}
	return description{Labels: labels, Annotations: annotations}, nil
}

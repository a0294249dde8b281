package cpi

import (
	"context"
	"encoding/json"
	"errors"
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

// putMetadata puts the metadata on the object of that name; missing is the error when there is none.
func putMetadata[T kubernetesObject, L runtime.Object](ctx context.Context, among *kube.Resource[T, L], name string, metadata map[string]any, missing *Error) error {
	patch, err := metadataPatch(metadata)
	if err != nil {
		return err
	}
	_, err = among.Patch(ctx, name, types.MergePatchType, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return missing
	}
	return err
}

// metadataPatch is the merge patch that puts the metadata on an object: as a label where Kubernetes
// allows the value, and as annotations always. A label that can no longer hold its value is removed.
func metadataPatch(metadata map[string]any) ([]byte, error) {
	all, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	labels := map[string]any{}
	annotations := map[string]any{manifest.AnnotationMetadata: string(all)}
	for key, value := range metadata {
		text, isText := value.(string)
		if !isText {
			raw, err := json.Marshal(value)
			if err != nil {
				return nil, err
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
			labels[name] = label
		} else {
			labels[name] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return patch, nil
}

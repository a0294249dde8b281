package cpi

import (
	"encoding/json"
	"fmt"

	"bosh-kubernetes-cpi/kube/manifest"
)

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

package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Metadata is what the director knows of a VM, a disk or a snapshot, as it stands on the object.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"` // nil removes a label
	Annotations map[string]string  `json:"annotations,omitempty"`
}

// BuildMetadata puts the director's metadata into labels where Kubernetes allows the value, and into
// annotations always. A label that can no longer hold its value is removed.
func BuildMetadata(metadata map[string]any) (Metadata, error) {
	all, err := json.Marshal(metadata)
	if err != nil {
		return Metadata{}, fmt.Errorf("metadata: %w", err)
	}
	described := Metadata{Labels: map[string]*string{}, Annotations: map[string]string{AnnotationMetadata: string(all)}}
	for key, value := range metadata {
		text, isText := value.(string)
		if !isText {
			raw, err := json.Marshal(value)
			if err != nil {
				return Metadata{}, fmt.Errorf("metadata: %w", err)
			}
			text = string(raw)
		}
		name, ok := LabelKey(key)
		if IsReservedKey(name) {
			name, ok = LabelKey("tag-" + key)
		}
		if !ok {
			continue // AnnotationMetadata has it
		}
		described.Annotations[name] = text
		if label, ok := LabelValue(text); ok {
			described.Labels[name] = &label
		} else {
			described.Labels[name] = nil
		}
	}
	return described, nil
}

// HasMetadata reports whether the director has ever given the object metadata. A VM it names as soon as create_vm has
// answered.
func HasMetadata(annotations map[string]string) bool {
	_, named := annotations[AnnotationMetadata]
	return named
}

// Patch is the strategic merge patch that puts the metadata on an object.
func (m Metadata) Patch() ([]byte, error) { return metadataPatch(m) }

// applyTo puts the metadata on an object that is yet to be made. What the CPI has written there stays.
func (m Metadata) applyTo(labels, annotations map[string]string) {
	for key, value := range m.Labels {
		if value != nil {
			labels[key] = *value
		}
	}
	maps.Copy(annotations, m.Annotations)
}

// SetLabel is the strategic merge patch that sets an object's label, or removes it when value is nil.
func SetLabel(key string, value *string) ([]byte, error) {
	return metadataPatch(map[string]any{"labels": map[string]*string{key: value}})
}

// SetAnnotation is the strategic merge patch that sets an object's annotation, or removes it when value is
// nil.
func SetAnnotation(key string, value *string) ([]byte, error) {
	return metadataPatch(map[string]any{"annotations": map[string]*string{key: value}})
}

func metadataPatch(metadata any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": metadata})
}

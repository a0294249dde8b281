package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Metadata is the director's metadata of a VM, a disk or a snapshot, as labels and annotations.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"` // nil removes a label
	Annotations map[string]string  `json:"annotations,omitempty"`
}

// BuildMetadata turns the director's metadata into annotations, and into labels if the value is a valid label value; otherwise it
// removes the label. A key that the CPI uses itself gets the prefix "tag-". AnnotationMetadata contains everything, also keys
// that are not valid names. It fails for values that cannot be encoded as JSON.
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

// HasMetadata reports whether the director has set metadata on the object. For a VM, the director does that right after create_vm.
func HasMetadata(annotations map[string]string) bool {
	_, ok := annotations[AnnotationMetadata]
	return ok
}

// Patch returns the strategic merge patch that sets the metadata.
func (m Metadata) Patch() ([]byte, error) { return metadataPatch(m) }

// applyTo adds the metadata to the labels and annotations of a new object.
func (m Metadata) applyTo(labels, annotations map[string]string) {
	for key, value := range m.Labels {
		if value != nil {
			labels[key] = *value
		}
	}
	maps.Copy(annotations, m.Annotations)
}

// SetLabel returns the strategic merge patch that sets an object's label, or removes it if value is nil.
func SetLabel(key string, value *string) ([]byte, error) {
	return metadataPatch(map[string]any{"labels": map[string]*string{key: value}})
}

// SetAnnotation returns the strategic merge patch that sets an object's annotation, or removes it if value is nil.
func SetAnnotation(key string, value *string) ([]byte, error) {
	return metadataPatch(map[string]any{"annotations": map[string]*string{key: value}})
}

func metadataPatch(metadata any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": metadata})
}

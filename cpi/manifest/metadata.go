package manifest

import "maps"

// Metadata is the director's metadata of a VM, a disk or a snapshot, as labels and annotations.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"` // nil removes a label
	Annotations map[string]string  `json:"annotations,omitempty"`
}

// BuildMetadata converts the director's metadata to annotations, and to labels if the values are valid label values. It removes
// labels with other values. A key that the CPI itself uses gets the prefix "tag-". AnnotationMetadata contains everything,
// including keys that are not valid names. The values were decoded from JSON.
func BuildMetadata(metadata map[string]any) Metadata {
	result := Metadata{Labels: map[string]*string{}, Annotations: map[string]string{AnnotationMetadata: string(encode(metadata))}}
	for key, value := range metadata {
		annotation, isString := value.(string)
		if !isString {
			annotation = string(encode(value))
		}
		name, ok := LabelKey(key)
		if IsReservedKey(name) {
			name, ok = LabelKey("tag-" + key)
		}
		if !ok {
			continue // AnnotationMetadata has it
		}
		if value == nil {
			result.Labels[name] = nil
			continue
		}
		result.Annotations[name] = annotation
		if label, ok := LabelValue(annotation); ok {
			result.Labels[name] = &label
		} else {
			result.Labels[name] = nil
		}
	}
	return result
}

// HasMetadata reports whether the object has metadata from the director. The director sets a VM's metadata right after create_vm.
func HasMetadata(annotations map[string]string) bool {
	_, ok := annotations[AnnotationMetadata]
	return ok
}

// Patch returns the strategic merge patch that sets the metadata.
func (m Metadata) Patch() []byte { return metadataPatch(m) }

// PatchIfRole returns the JSON patch that sets the metadata of an object with this role. For any other object, the patch does not apply.
func (m Metadata) PatchIfRole(role string) []byte {
	const labels, annotations = "/metadata/labels/", "/metadata/annotations/"
	var patch jsonPatch
	patch.test(labels+LabelRole, role)
	for key, value := range m.Annotations {
		patch.add(annotations+key, value)
	}
	for key, value := range m.Labels {
		if value != nil {
			patch.add(labels+key, *value)
			continue
		}
		patch.add(labels+key, "") // only an existing label can be removed
		patch = append(patch, jsonOperation{Operation: "remove", Path: jsonPointer(labels + key)})
	}
	return encode(patch)
}

// applyTo adds the metadata to the labels and annotations of a new object.
func (m Metadata) applyTo(labels, annotations map[string]string) {
	for key, value := range m.Labels {
		if value != nil {
			labels[key] = *value
		}
	}
	maps.Copy(annotations, m.Annotations)
}

// addMissing adds labels or annotations. It does not change existing ones.
func addMissing(existing, added map[string]string) {
	for key, value := range added {
		if _, ok := existing[key]; !ok {
			existing[key] = value
		}
	}
}

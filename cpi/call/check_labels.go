package call

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// CheckLabel returns an error if the label is not valid in Kubernetes. The message begins with location, the key of the hash that
// contains the label.
func CheckLabel(location, key, value string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return InvalidPropertyf("%s: %q is not a valid label name: %s", location, key, problems[0])
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return InvalidPropertyf("%s.%s: %q is not a valid label value: %s", location, key, value, problems[0])
	}
	return nil
}

// CheckLabels returns an error if a label or annotation is not valid in Kubernetes, or is reserved for the CPI. The message begins
// with location, the key of the hash that contains labels and annotations.
func CheckLabels(location string, labels, annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if err := CheckLabel(location+".labels", key, labels[key]); err != nil {
			return err
		}
		if manifest.IsReservedKey(key) {
			return InvalidPropertyf("%s.labels.%s is reserved for the CPI", location, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return InvalidPropertyf("%s.annotations: %q is not a valid annotation name: %s", location, key, problems[0])
		}
		if manifest.IsReservedKey(key) {
			return InvalidPropertyf("%s.annotations.%s is reserved for the CPI", location, key)
		}
	}
	return nil
}

package call

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/kube/manifest"
)

// CheckLabel refuses a label that Kubernetes does not take. where names the hash that it stands in.
func CheckLabel(where, key, value string) error {
	if why := validation.IsQualifiedName(key); len(why) > 0 {
		return Invalid("%s: %q is not a label's name: %s", where, key, why[0])
	}
	if why := validation.IsValidLabelValue(value); len(why) > 0 {
		return Invalid("%s.%s: %q is not a label's value: %s", where, key, value, why[0])
	}
	return nil
}

// CheckLabels refuses labels and annotations that Kubernetes does not take, or that are the CPI's own. where
// names the hash that they stand in.
func CheckLabels(where string, labels, annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if err := CheckLabel(where+".labels", key, labels[key]); err != nil {
			return err
		}
		if manifest.IsReservedKey(key) {
			return Invalid("%s.labels.%s is the CPI's own label", where, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			return Invalid("%s.annotations: %q is not an annotation's name: %s", where, key, why[0])
		}
		if manifest.IsReservedKey(key) {
			return Invalid("%s.annotations.%s is the CPI's own annotation", where, key)
		}
	}
	return nil
}

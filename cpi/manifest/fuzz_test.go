package manifest_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// FuzzMetadata checks that any metadata of a director results in valid labels and annotations, and never replaces a reserved one.
func FuzzMetadata(f *testing.F) {
	for _, seed := range [][2]string{
		{"deployment", "cf"}, {"name", "web/0 (bootstrap)"}, {"", ""}, {"vm", "x"}, {"a b", "c\x00d"}, {"bosh.cloudfoundry.org/role", "vm"},
		{"job", "ünïcode"}, {"kubernetes.io/hostname", "n"}, {"-", "-"}, {"size-mib", "7"}, {"tag-vm", "8"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		result := manifest.BuildMetadata(map[string]any{key: value, "index": 3})
		for name, label := range result.Labels {
			if len(validation.IsQualifiedName(name)) > 0 || label != nil && len(validation.IsValidLabelValue(*label)) > 0 {
				t.Fatalf("%q: %q results in the invalid label %q", key, value, name)
			}
			if manifest.IsReservedKey(name) {
				t.Fatalf("%q replaces label %s", key, name)
			}
		}
		for name := range result.Annotations {
			if len(validation.IsQualifiedName(name)) > 0 || name != manifest.AnnotationMetadata && manifest.IsReservedKey(name) {
				t.Fatalf("%q results in the invalid or reserved annotation %q", key, name)
			}
		}
		var decoded struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(result.Patch(), &decoded); err != nil {
			t.Fatalf("the patch is not valid: %v", err)
		}
	})
}

// FuzzGroup checks that an instance group of any name has a valid label value, and always the same one.
func FuzzGroup(f *testing.F) {
	for _, name := range []string{"", "web", "web-with-a-name-that-is-longer-than-a-label-value-may-be-in-kubernetes", "ä", "a/b", "-"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		label := manifest.GroupLabel(name)
		if problems := validation.IsValidLabelValue(label); len(problems) > 0 {
			t.Fatalf("group %q has the label %q: %v", name, label, problems)
		}
		if manifest.GroupLabel(name) != label {
			t.Fatal("a second call returns another label")
		}
	})
}

package manifest_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/kube/manifest"
)

// Names with everything in them: the metadata of whatever a director and its operators call things can be put on an object,
// and none of it takes the place of what the CPI works with.
func FuzzMetadata(f *testing.F) {
	for _, seed := range [][2]string{
		{"deployment", "cf"}, {"name", "web/0 (bootstrap)"}, {"", ""}, {"vm", "x"}, {"a b", "c\x00d"}, {"bosh.cloudfoundry.org/role", "vm"},
		{"job", "ünïcode"}, {"kubernetes.io/hostname", "n"}, {"-", "-"}, {"size-mib", "7"}, {"tag-vm", "8"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		described, err := manifest.BuildMetadata(map[string]any{key: value, "index": 3})
		if err != nil {
			t.Fatal(err)
		}
		for name, label := range described.Labels {
			if len(validation.IsQualifiedName(name)) > 0 || label != nil && len(validation.IsValidLabelValue(*label)) > 0 {
				t.Fatalf("%q: %q gives the label %q, which is none", key, value, name)
			}
			if manifest.IsReservedKey(name) {
				t.Fatalf("%q takes the place of label %s", key, name)
			}
		}
		for name := range described.Annotations {
			if len(validation.IsQualifiedName(name)) > 0 || name != manifest.AnnotationMetadata && manifest.IsReservedKey(name) {
				t.Fatalf("%q gives the annotation %q", key, name)
			}
		}
		patch, err := described.Patch()
		if err != nil {
			t.Fatal(err)
		}
		var decoded struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(patch, &decoded); err != nil {
			t.Fatalf("the patch is none: %v", err)
		}
	})
}

// FuzzGroup: an instance group of any name has a label, the same for the same name.
func FuzzGroup(f *testing.F) {
	for _, name := range []string{"", "web", "web-and-all-that-is-behind-it-in-a-name-that-no-label-can-hold-any-more", "ä", "a/b", "-"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		label := manifest.GroupLabel(name)
		if why := validation.IsValidLabelValue(label); len(why) > 0 {
			t.Fatalf("group %q has the label %q: %v", name, label, why)
		}
		if manifest.GroupLabel(name) != label {
			t.Fatal("a label is another the second time")
		}
	})
}

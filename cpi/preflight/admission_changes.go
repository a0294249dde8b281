package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// imageField matches fields of image volumes that the cluster may change, as those of containers: it replaces the registry of images, and
// the admission plugin AlwaysPullImages the pull policy.
var imageField = regexp.MustCompile(`^volumes\[[^]]+\]\.image\.(reference|pullPolicy)$`)

// requiredFields are the fields of a Pod, or of its own container, that the cluster must not change or remove, and the consequence if
// it does. The cluster may change other fields.
var requiredFields = []struct {
	name        string
	ofContainer bool
	consequence string
}{
	{"terminationGracePeriodSeconds", false, "the kubelet kills the Pod after another time: " +
		"an attachment Pod while its disk is in use, or a VM before its jobs stop"},
	{"hostPID", false, "the Pod does not find the processes that use a disk, or those of the VM"},
	{"priorityClassName", false, "the kubelet and the scheduler evict or preempt the Pod too early, " +
		"an attachment Pod while its disk is in use"},
	{"securityContext", false, "the programs of the Pod lack permissions"},
	{"securityContext", true, "the programs of the Pod lack permissions"},
	{"volumes", false, "the Pod lacks its disk or its files"},
	{"volumeMounts", true, "the Pod lacks its disk or its files"},
	{"volumeDevices", true, "the Pod lacks its disk"},
}

// admissionChanges describes what the cluster changed or removed in requiredFields of the Pod, for example "changed hostPID of attachment
// Pods from true to false: CONSEQUENCE". It ignores additions, such as injected sidecars, volumes and default values. pods describes Pods
// of this kind.
func admissionChanges(pods string, sent, admitted *corev1.Pod) (changes []string) {
	from, to := specFields(sent), specFields(admitted)
	for _, field := range requiredFields {
		sentField, admittedField := from.pod[field.name], to.pod[field.name]
		if field.ofContainer {
			sentField, admittedField = from.container[field.name], to.container[field.name]
		}
		for _, change := range compareFields(field.name, sentField, admittedField) {
			if imageField.MatchString(change.path) && change.admitted != nil {
				continue
			}
			changes = append(changes, change.describe(pods)+": "+field.consequence)
		}
	}
	return changes
}

// fields are the fields in the spec of a Pod, and those of its own container.
type fields struct{ pod, container map[string]any }

func specFields(pod *corev1.Pod) (found fields) {
	// Neither conversion fails for a Pod.
	object, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	found.pod, _, _ = unstructured.NestedMap(object, "spec")
	found.container, _ = runtime.DefaultUnstructuredConverter.ToUnstructured(manifest.OwnContainer(pod))
	return found
}

// fieldChange is a changed field. admitted is nil if it was removed.
type fieldChange struct {
	path           string
	sent, admitted any
}

func (c fieldChange) describe(pods string) string {
	if c.admitted == nil {
		return fmt.Sprintf("removed %s of %s", c.path, pods)
	}
	return fmt.Sprintf("changed %s of %s from %v to %v", c.path, pods, c.sent, c.admitted)
}

// compareFields returns the values in sent that are missing in admitted, or different there. It matches list items by their keys.
func compareFields(path string, sent, admitted any) (changes []fieldChange) {
	switch sent := sent.(type) {
	case nil:
		return nil
	case map[string]any:
		existing, found := admitted.(map[string]any)
		if !found {
			return []fieldChange{{path, sent, admitted}}
		}
		for _, key := range slices.Sorted(maps.Keys(sent)) {
			changes = append(changes, compareFields(path+"."+key, sent[key], existing[key])...)
		}
		return changes
	case []any:
		existing, _ := admitted.([]any)
		for _, item := range sent {
			key := itemKey(item)
			i := slices.IndexFunc(existing, func(other any) bool { return key != "" && itemKey(other) == key })
			switch {
			case i >= 0:
				changes = append(changes, compareFields(path+"["+key+"]", item, existing[i])...)
			case !slices.ContainsFunc(existing, func(other any) bool { return len(compareFields("", item, other)) == 0 }):
				changes = append(changes, fieldChange{path + "[" + cmp.Or(key, fmt.Sprint(item)) + "]", item, nil})
			}
		}
		return changes
	}
	if reflect.DeepEqual(sent, admitted) {
		return nil
	}
	return []fieldChange{{path, sent, admitted}}
}

// itemKey returns the merge key of an item in volumeMounts, volumeDevices or volumes, or "".
func itemKey(item any) string {
	object, _ := item.(map[string]any)
	for _, name := range []string{"mountPath", "devicePath", "name"} {
		if key, found := object[name].(string); found {
			return key
		}
	}
	return ""
}

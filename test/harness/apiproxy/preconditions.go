package apiproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// recordKeys are the labels and annotations that record the owner and the state of a disk. Calls change them only by compare-and-swap:
// see docs/development/architecture.md.
var recordKeys = []string{
	manifest.LabelVM, manifest.AnnotationOwner, manifest.AnnotationSize, manifest.AnnotationFormatted, manifest.AnnotationCall,
}

// uidSuffices contains the resources of which a patch requires only the UID, with the reason. Other patches also require the
// resourceVersion that the call read.
var uidSuffices = map[string]string{
	"pods":                     "nodes change the status at any time; a call changes a Pod for what it is, or changes only keys of its own",
	"pods/ephemeralcontainers": "the state of the Pod does not matter when a check starts",
	"volumesnapshots":          "the snapshot controller changes the status at any time; one call knows the snapshot",
}

// patchMetadata is the part of a merge patch that decides whether it requires a precondition.
type patchMetadata struct {
	UID, ResourceVersion string
	Labels, Annotations  map[string]*string
}

// unconditional contains the patches of metadata that require no precondition, by resource. The name of the object is unique, and the
// patch changes only keys on which no decision depends.
var unconditional = map[string]func(patchMetadata) bool{
	// set_vm_metadata
	"pods": func(patch patchMetadata) bool { _, ok := patch.Annotations[manifest.AnnotationMetadata]; return ok },
	// set_disk_metadata, and labels and annotations in update_disk
	"persistentvolumeclaims": func(patch patchMetadata) bool {
		return !slices.ContainsFunc(recordKeys, func(key string) bool {
			_, label := patch.Labels[key]
			_, annotation := patch.Annotations[key]
			return label || annotation
		})
	},
}

// missingPrecondition returns the reason to reject the request, or "". It rejects changes and deletions without a precondition on the
// state that the CPI read. The request's body stays readable.
func missingPrecondition(r *http.Request) string {
	_, resource, named := ParseRequest(r)
	if !named || r.Method != http.MethodPatch && r.Method != http.MethodDelete || r.Body == nil {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case r.Method == http.MethodDelete:
		return missingDeletePrecondition(body, resource == "persistentvolumeclaims" && strings.HasPrefix(name, "disk-"))
	case r.Header.Get("Content-Type") == string(types.JSONPatchType):
		if bytes.Contains(body, []byte(`"op":"test"`)) {
			return ""
		}
		return "a JSON patch of " + resource + " has no test operation"
	}
	return missingPatchPrecondition(resource, body)
}

// missingDeletePrecondition returns the reason to reject a deletion, or "". A deletion requires the UID of the object, and for a disk
// also its resourceVersion.
func missingDeletePrecondition(body []byte, disk bool) string {
	var options metav1.DeleteOptions
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &options); err != nil {
		if err := json.Unmarshal(body, &options); err != nil {
			return "the deletion has no options: " + err.Error()
		}
	}
	switch preconditions := options.Preconditions; {
	case preconditions == nil || preconditions.UID == nil || *preconditions.UID == "":
		return "the deletion has no UID precondition"
	case disk && preconditions.ResourceVersion == nil:
		return "the deletion of a disk has no resourceVersion precondition"
	}
	return ""
}

// missingPatchPrecondition returns the reason to reject a merge patch, or "".
func missingPatchPrecondition(resource string, body []byte) string {
	var patch struct {
		Metadata patchMetadata
		Spec     json.RawMessage
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return fmt.Sprintf("cannot parse the patch: %v", err)
	}
	_, onlyUID := uidSuffices[resource]
	if patch.Metadata.UID != "" && (onlyUID || patch.Metadata.ResourceVersion != "") {
		return ""
	}
	if allowed := unconditional[resource]; allowed != nil && len(patch.Spec) == 0 && allowed(patch.Metadata) {
		return ""
	}
	return "a patch of " + resource + " has no precondition"
}

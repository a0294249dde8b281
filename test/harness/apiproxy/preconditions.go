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
	manifest.LabelVM, manifest.AnnotationOwner, manifest.LabelCopy, manifest.AnnotationCopyOf, manifest.AnnotationCopiedTo,
	manifest.AnnotationSize, manifest.AnnotationFormatted, manifest.AnnotationCall,
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
	case resource == "persistentvolumeclaims":
		return missingPatchPrecondition(r.Header.Get("Content-Type"), body)
	case resource == "pods/ephemeralcontainers" && !bytes.Contains(body, []byte(`"uid"`)):
		return "an ephemeral container is added without the Pod's UID"
	}
	return ""
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

// missingPatchPrecondition returns the reason to reject a patch of a PVC, or "". A patch of recordKeys requires a precondition.
func missingPatchPrecondition(contentType string, body []byte) string {
	if contentType == string(types.JSONPatchType) {
		if bytes.Contains(body, []byte(`"op":"test"`)) {
			return ""
		}
		return "a JSON patch of a disk has no test operation"
	}
	var patch struct {
		Metadata struct {
			ResourceVersion     string
			Labels, Annotations map[string]*string
		}
		Spec json.RawMessage
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return fmt.Sprintf("cannot parse the patch: %v", err)
	}
	if patch.Metadata.ResourceVersion != "" {
		return ""
	}
	if len(patch.Spec) > 0 {
		return "a patch changes the spec of a disk without its resourceVersion"
	}
	for _, keys := range []map[string]*string{patch.Metadata.Labels, patch.Metadata.Annotations} {
		for key := range keys {
			if slices.Contains(recordKeys, key) {
				return "a patch changes " + key + " of a disk without its resourceVersion"
			}
		}
	}
	return ""
}

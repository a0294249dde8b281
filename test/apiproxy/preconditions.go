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
)

// recordKeys are the labels and annotations of a disk's PVC that say who owns the disk, and what it is. They change only by
// compare-and-swap: see docs/development/architecture.md.
var recordKeys = []string{"vm", "owner-uid", "copy", "copy-of", "copied-to", "size-mib", "formatted", "call"}

const keyPrefix = "bosh.cloudfoundry.org/"

// missingPrecondition returns why a request that changes or deletes something is refused: it would do so whatever has become of the
// object since it was read. "" stands for any other request. The request's body can be read again.
func missingPrecondition(r *http.Request) string {
	_, kind, named := ParseRequest(r)
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
		return missingDeletePrecondition(body, kind == "persistentvolumeclaims" && strings.HasPrefix(name, "disk-"))
	case kind == "persistentvolumeclaims":
		return missingPatchPrecondition(r.Header.Get("Content-Type"), body)
	case kind == "pods/ephemeralcontainers" && !bytes.Contains(body, []byte(`"uid"`)):
		return "a container is added to whatever Pod has this name"
	}
	return ""
}

// missingDeletePrecondition returns why a deletion does not name the object that was judged: by its UID, and for a disk by its version too.
func missingDeletePrecondition(body []byte, disk bool) string {
	var options metav1.DeleteOptions
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &options); err != nil {
		if err := json.Unmarshal(body, &options); err != nil {
			return "the deletion has no options: " + err.Error()
		}
	}
	switch preconditions := options.Preconditions; {
	case preconditions == nil || preconditions.UID == nil || *preconditions.UID == "":
		return "a deletion names no UID"
	case disk && preconditions.ResourceVersion == nil:
		return "the deletion of a disk names no resourceVersion"
	}
	return ""
}

// missingPatchPrecondition returns why a patch of a PVC changes the record of a disk without a condition.
func missingPatchPrecondition(contentType string, body []byte) string {
	if contentType == string(types.JSONPatchType) {
		if bytes.Contains(body, []byte(`"op":"test"`)) {
			return ""
		}
		return "a JSON patch of a disk tests nothing"
	}
	var patch struct {
		Metadata struct {
			ResourceVersion     string
			Labels, Annotations map[string]*string
		}
		Spec json.RawMessage
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return fmt.Sprintf("the patch cannot be read: %v", err)
	}
	if patch.Metadata.ResourceVersion != "" {
		return ""
	}
	if len(patch.Spec) > 0 {
		return "a patch changes the spec of a disk without its resourceVersion"
	}
	for _, keys := range []map[string]*string{patch.Metadata.Labels, patch.Metadata.Annotations} {
		for key := range keys {
			if slices.Contains(recordKeys, strings.TrimPrefix(key, keyPrefix)) && strings.HasPrefix(key, keyPrefix) {
				return "a patch changes " + key + " of a disk without its resourceVersion"
			}
		}
	}
	return ""
}

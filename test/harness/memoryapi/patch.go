package memoryapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// patch changes an object or its subresource. A uid or resourceVersion in a merge patch is a precondition. A patch that finds its result
// makes no new version.
func (s *Server) patch(t target, patchType types.PatchType, patch []byte) (*Object, error) {
	obj, err := s.get(t.key)
	if err != nil {
		return nil, err
	}
	original, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	var result []byte
	switch patchType {
	case types.JSONPatchType:
		result, err = applyJSONPatch(original, patch)
	case types.StrategicMergePatchType:
		typed, typeErr := scheme.Scheme.New(obj.GroupVersionKind())
		if typeErr != nil {
			return nil, apierrors.NewBadRequest(typeErr.Error())
		}
		result, err = strategicpatch.StrategicMergePatch(original, patch, typed)
	default:
		result, err = jsonpatch.MergePatch(original, patch)
	}
	if err != nil {
		return nil, err
	}
	patched := &Object{}
	if err := json.Unmarshal(result, &patched.Object); err != nil {
		return nil, err
	}
	if patched.GetUID() != obj.GetUID() || patched.GetResourceVersion() != obj.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: t.resource}, t.name, errPrecondition)
	}
	changed, err := json.Marshal(patched.Object)
	if err != nil || bytes.Equal(changed, original) {
		return obj, err
	}
	if patched.GetDeletionTimestamp() != nil && len(patched.GetFinalizers()) == 0 {
		s.store(t.key, patched, watch.Deleted)
		return patched, nil
	}
	s.store(t.key, patched, watch.Modified)
	return s.objects[t.key], nil
}

// applyJSONPatch applies a patch of RFC 6902. The error for a failed test operation is the API server's
// (apiserver/pkg/endpoints/handlers/patch.go, jsonPatcher.applyJSPatch).
func applyJSONPatch(original, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	result, err := operations.Apply(original)
	if err != nil {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
		}}
	}
	return result, nil
}

package call

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// PatchMetadata sets the director's metadata on the object with this name, and returns the patched object. If no object with the role has
// the name, the error is kube.ErrNotFound, and nothing is changed.
func PatchMetadata[T kube.Object, L runtime.Object](
	ctx context.Context, resource *kube.Resource[T, L], name, role string,
	metadata manifest.Metadata) (T, error) {

	var none T
	patched, err := resource.PatchJSON(ctx, name, metadata.PatchIfRole(role))
	if !errors.Is(err, kube.ErrConflict) {
		return patched, err
	}
	// The object has another role, or for example a webhook denied the patch.
	if existing, getErr := resource.Get(ctx, name); getErr == nil && manifest.HasRole(existing, role) {
		return none, err
	}
	return none, fmt.Errorf("%w: %w", kube.ErrNotFound, err)
}

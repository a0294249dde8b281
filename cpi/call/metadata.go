package call

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// PatchMetadata sets the director's metadata on the object with this name, and returns the patched object.
func PatchMetadata[T kube.Object, L runtime.Object](
	ctx context.Context, resource *kube.Resource[T, L], name string, metadata manifest.Metadata) (T, error) {

	patch, err := metadata.Patch()
	if err != nil {
		var none T
		return none, err
	}
	return resource.Patch(ctx, name, patch)
}

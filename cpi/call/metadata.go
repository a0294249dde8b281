package call

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Object is any Kubernetes object.
type Object interface {
	runtime.Object
	metav1.Object
}

// PatchMetadata sets the director's metadata on the object with this name, and returns the patched object.
func PatchMetadata[T Object, L runtime.Object](
	ctx context.Context, resource *kube.Resource[T, L], name string, metadata manifest.Metadata) (T, error) {

	patch, err := metadata.Patch()
	if err != nil {
		var none T
		return none, err
	}
	return resource.Patch(ctx, name, patch)
}

package kube

import (
	"context"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// requests sends single requests about one kind of object. It neither retries them nor translates their errors.
//
// It replaces client-go's gentype. gentype links client-go's fakes, OpenAPI, managed fields and a second protobuf library into
// every program, which costs 2.5 MB of file size and 2.7 MiB of memory.
type requests[T Object, L runtime.Object] struct {
	connection
	plural    string
	newObject func() T
	newList   func() L
}

// forObject adds the namespace, the resource, the Accept header, and the object's name unless it is empty.
func (r requests[T, L]) forObject(request *rest.Request, name string) *rest.Request {
	request = request.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.plural)
	if r.accept != "" {
		request = request.SetHeader("Accept", r.accept)
	}
	if name != "" {
		request = request.Name(name)
	}
	return request
}

// URL returns the URL of the object's subresource, for protocols such as port-forward that upgrade the connection.
func (r requests[T, L]) URL(name, subresource string) *url.URL {
	return r.forObject(r.client.Get(), name).SubResource(subresource).URL()
}

func (r requests[T, L]) get(ctx context.Context, name string) (T, error) {
	result := r.newObject()
	return result, r.forObject(r.client.Get(), name).Do(ctx).Into(result)
}

func (r requests[T, L]) create(ctx context.Context, desired T) (T, error) {
	result := r.newObject()
	return result, r.forObject(r.client.Post(), "").Body(desired).Do(ctx).Into(result)
}

// dryRunCreate is like create, but the API server does not store the object.
func (r requests[T, L]) dryRunCreate(ctx context.Context, desired T) (T, error) {
	result := r.newObject()
	return result, r.forObject(r.client.Post(), "").Param("dryRun", metav1.DryRunAll).Body(desired).Do(ctx).Into(result)
}

func (r requests[T, L]) delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return r.forObject(r.client.Delete(), name).Body(&options).Do(ctx).Error()
}

func (r requests[T, L]) patch(ctx context.Context, name string, patch []byte, subresources ...string) (T, error) {
	result := r.newObject()
	return result, r.forObject(r.client.Patch(r.patches), name).SubResource(subresources...).Body(patch).Do(ctx).Into(result)
}

func (r requests[T, L]) patchJSON(ctx context.Context, name string, patch []byte) (T, error) {
	result := r.newObject()
	return result, r.forObject(r.client.Patch(types.JSONPatchType), name).Body(patch).Do(ctx).Into(result)
}

func (r requests[T, L]) list(ctx context.Context, options metav1.ListOptions) (L, error) {
	result := r.newList()
	return result, r.forObject(r.client.Get(), "").VersionedParams(&options, r.codec).Do(ctx).Into(result)
}

func (r requests[T, L]) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return r.forObject(r.client.Get(), "").VersionedParams(&options, r.codec).Watch(ctx)
}

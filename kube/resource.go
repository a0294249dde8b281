package kube

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any Kubernetes object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource sends requests about one kind of object, in one namespace or for cluster-scoped objects. It retries while the API server
// is unreachable. The errors of requests are of type *Error.
type Resource[T Object, L runtime.Object] struct {
	requests[T, L]
	kind string
}

// isValidName reports whether the name is a segment of a URL path, as the names of objects must be.
func isValidName(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func (r *Resource[T, L]) action(verb, name string) string {
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return verb + " " + r.kind + " " + name
}

// Get returns the object of this name. It returns ErrNotFound if there is none.
func (r *Resource[T, L]) Get(ctx context.Context, name string) (T, error) {
	return r.send(ctx, "get", name, func(ctx context.Context) (T, error) { return r.get(ctx, name) })
}

// Create creates the object, and returns it as stored by the API server. It returns ErrExists if the name exists. That object may
// be the one that this call created: if the response to the first request is lost, the retried request fails with ErrExists.
func (r *Resource[T, L]) Create(ctx context.Context, desired T) (T, error) {
	result, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.create(ctx, desired)
	})
	return result, r.translate(r.action("create", desired.GetName()), err)
}

// DryRunCreate is like Create, but the API server does not store the object.
func (r *Resource[T, L]) DryRunCreate(ctx context.Context, desired T) (T, error) {
	result, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) { return r.dryRunCreate(ctx, desired) })
	return result, r.translate(r.action("create", desired.GetName()), err)
}

// Delete requests the deletion of exactly this object, by UID, and never of a new object of the same name. It does not wait for the
// deletion. It returns nil if the object no longer exists.
func (r *Resource[T, L]) Delete(ctx context.Context, obj T) error {
	return r.DeleteWithGracePeriod(ctx, obj, nil)
}

// DeleteWithGracePeriod is like Delete, with a grace period in seconds. If it is nil, the object's own applies.
func (r *Resource[T, L]) DeleteWithGracePeriod(ctx context.Context, obj T, seconds *int64) error {
	for retried := false; ; retried = true {
		err := r.delete(ctx, obj, seconds, metav1.Preconditions{UID: new(obj.GetUID())}, nil)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if !errors.Is(err, ErrConflict) || retried {
			return err
		}
		// There is a new object of this name, or something else, such as a webhook, caused the conflict.
		current, getErr := r.Get(ctx, obj.GetName())
		if errors.Is(getErr, ErrNotFound) || getErr == nil && current.GetUID() != obj.GetUID() {
			return nil
		}
		if getErr != nil {
			return getErr
		}
	}
}

// DeleteUnchanged is like Delete, but returns ErrConflict if the object changed since it was read. It returns nil for an object that
// is being deleted: if the response to the first request is lost, the deletion itself is a change that the retried request finds.
func (r *Resource[T, L]) DeleteUnchanged(ctx context.Context, obj T) error {
	_, err := r.DeleteInState(ctx, obj)
	return err
}

// Deletion is what is known about the state of an object when its deletion was requested.
type Deletion int

// Outcomes of DeleteInState.
const (
	DeletedLater Deletion = iota // another client may have deleted the object in a later state
	// DeletionUnconfirmed means that the response was lost, and that the object is gone or being deleted: most likely by the request.
	DeletionUnconfirmed
	DeletedUnchanged // the object certainly was in this state
)

// DeleteInState is DeleteUnchanged, and returns what is known about the state of the object.
func (r *Resource[T, L]) DeleteInState(ctx context.Context, obj T) (Deletion, error) {
	lost, outcome := false, DeletedLater
	err := r.delete(ctx, obj, nil, metav1.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())}, &lost)
	if lost {
		outcome = DeletionUnconfirmed
	}
	switch {
	case err == nil:
		return DeletedUnchanged, nil
	case errors.Is(err, ErrNotFound):
		return outcome, nil
	case !errors.Is(err, ErrConflict):
		return DeletedLater, err
	}
	current, getErr := r.Get(ctx, obj.GetName())
	switch {
	case errors.Is(getErr, ErrNotFound):
		return outcome, nil
	case getErr != nil:
		return DeletedLater, getErr
	case current.GetUID() != obj.GetUID() || current.GetDeletionTimestamp() != nil:
		return outcome, nil
	}
	return DeletedLater, err
}

// delete sends the request. It sets lost, which may be nil, if it is not known whether an attempt succeeded.
func (r *Resource[T, L]) delete(ctx context.Context, obj T, gracePeriod *int64, preconditions metav1.Preconditions, lost *bool) error {
	_, err := r.send(ctx, "delete", obj.GetName(), func(ctx context.Context) (none T, err error) {
		err = r.requests.delete(ctx, obj.GetName(), metav1.DeleteOptions{
			GracePeriodSeconds: gracePeriod,
			Preconditions:      &preconditions,
			PropagationPolicy:  new(metav1.DeletePropagationBackground),
		})
		if lost != nil && err != nil && isTransient(err) { // also an error response of a server that stopped waiting for etcd
			*lost = true
		}
		return none, err
	})
	return err
}

// Patch applies the patch to the object or its subresource, and returns the result. The patch is a strategic merge patch, or a JSON
// merge patch for kinds of package extension. Patch returns ErrNotFound if the object does not exist, and ErrConflict if the
// patch contains a uid or resourceVersion that differs from the object's.
func (r *Resource[T, L]) Patch(ctx context.Context, name string, patch []byte, subresources ...string) (T, error) {
	return r.send(ctx, "patch", name, func(ctx context.Context) (T, error) {
		return r.patch(ctx, name, patch, subresources...)
	})
}

// PatchJSON applies a JSON patch (RFC 6902). It returns ErrConflict if a test operation of the patch fails. That does not mean that
// the object is unchanged: if the response to the first request is lost, the retried request may fail because the first one
// changed the tested values.
func (r *Resource[T, L]) PatchJSON(ctx context.Context, name string, patch []byte) (T, error) {
	result, err := r.send(ctx, "patch", name, func(ctx context.Context) (T, error) {
		return r.patchJSON(ctx, name, patch)
	})
	if failed, ok := errors.AsType[*Error](err); ok && isFailedPatchTest(failed.Err) {
		failed.Kind = ErrConflict
	}
	return result, err
}

// send sends a request about the object of this name, with retries.
func (r *Resource[T, L]) send(ctx context.Context, verb, name string, request func(context.Context) (T, error)) (result T, err error) {
	if !isValidName(name) {
		return result, invalidNameError(r.action(verb, name))
	}
	result, err = retry(ctx, r.retryPolicy, request)
	return result, r.translate(r.action(verb, name), err)
}

// Selection selects the objects that match all of its fields. The zero value selects all objects.
type Selection struct {
	Name   string
	Labels string // label selector
	Fields string // field selector; ignored if Name is set
}

func (s Selection) options() metav1.ListOptions {
	fields := s.Fields
	if s.Name != "" {
		fields = "metadata.name=" + s.Name
	}
	return metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: fields}
}

func (s Selection) String() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Labels != "":
		return "(" + s.Labels + ")"
	case s.Fields == "":
		return "(all)"
	default:
		return "(" + s.Fields + ")"
	}
}

// ObjectList contains the selected objects at one resource version.
type ObjectList[T Object] struct {
	Items           []T
	ResourceVersion string
	continueToken   string // for the next page; "" for the last page
}

// List returns the selected objects.
func (r *Resource[T, L]) List(ctx context.Context, selection Selection) (ObjectList[T], error) {
	list, err := r.page(ctx, selection, selection.options())
	if err != nil {
		return ObjectList[T]{}, err
	}
	return newObjectList[T](list)
}

// pageSize is the number of objects that Find requests at a time.
const pageSize = 250

// Find returns the first selected object for which matches returns true; ok is false if there is none. It reads the objects in pages
// up to the first match. Use it instead of List for selections that may contain all objects of a namespace or cluster.
func (r *Resource[T, L]) Find(ctx context.Context, selection Selection, matches func(T) bool) (found T, ok bool, err error) {
	options := selection.options()
	options.Limit = pageSize
	for {
		list, err := r.page(ctx, selection, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) { // the next page expired: start over
			options.Continue = ""
			continue
		}
		if err != nil {
			return found, false, err
		}
		page, err := newObjectList[T](list)
		if err != nil {
			return found, false, err
		}
		if i := slices.IndexFunc(page.Items, matches); i >= 0 {
			return page.Items[i], true, nil
		}
		if options.Continue = page.continueToken; options.Continue == "" {
			return found, false, nil
		}
	}
}

func (r *Resource[T, L]) page(ctx context.Context, selection Selection, options metav1.ListOptions) (L, error) {
	list, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (L, error) { return r.list(ctx, options) })
	return list, r.translate(r.action("list", selection.String()), err)
}

func newObjectList[T Object](list runtime.Object) (ObjectList[T], error) {
	result := ObjectList[T]{}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return result, err
	}
	result.ResourceVersion, result.continueToken = accessor.GetResourceVersion(), accessor.GetContinue()
	err = meta.EachListItem(list, func(item runtime.Object) error {
		result.Items = append(result.Items, item.(T))
		return nil
	})
	return result, err
}

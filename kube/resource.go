package kube

import (
	"context"
	"errors"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type object interface {
	runtime.Object
	metav1.Object
}

// Resource sends requests about one kind of object, in one namespace, or without one for cluster-scoped kinds. Requests are
// repeated while the API server cannot be reached; their errors are of type *Error.
type Resource[T object, L runtime.Object] struct {
	requests[T, L]
	kind string
}

// isValidName reports whether an object can have this name: it has to be one segment of a request's path.
func isValidName(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func (r *Resource[T, L]) action(verb, name string) string {
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return verb + " " + r.kind + " " + name
}

// Get returns the object of this name, or ErrNotFound.
func (r *Resource[T, L]) Get(ctx context.Context, name string) (T, error) {
	if !isValidName(name) {
		var none T
		return none, invalidNameError(r.action("get", name))
	}
	got, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.get(ctx, name)
	})
	return got, r.translate(r.action("get", name), err)
}

// Stream opens a subresource of the object of this name as a stream, such as its log. The stream ends with the context. The
// request is not repeated.
func (r *Resource[T, L]) Stream(ctx context.Context, name, subresource string, options runtime.Object) (io.ReadCloser, error) {
	if !isValidName(name) {
		return nil, invalidNameError(r.action("get "+subresource+" of", name))
	}
	stream, err := r.stream(ctx, name, subresource, options)
	return stream, r.translate(r.action("get "+subresource+" of", name), err)
}

// Create returns the object as the API server stored it, or ErrExists. If the answer to a first request is lost, the repeated
// one returns ErrExists for the object that the first one has created: compare the existing object before you decide.
func (r *Resource[T, L]) Create(ctx context.Context, desired T) (T, error) {
	got, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.create(ctx, desired)
	})
	return got, r.translate(r.action("create", desired.GetName()), err)
}

// DryRunCreate returns the object as the API server would store it after admission, or the error that Create would return.
// Nothing is stored.
func (r *Resource[T, L]) DryRunCreate(ctx context.Context, desired T) (T, error) {
	got, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) { return r.dryRunCreate(ctx, desired) })
	return got, r.translate(r.action("create", desired.GetName()), err)
}

// Delete requests the deletion of exactly this object, by UID, and not of a successor with the same name. It does not wait for
// the deletion, and returns nil if the object does not exist any more.
func (r *Resource[T, L]) Delete(ctx context.Context, obj T) error {
	for retried := false; ; retried = true {
		err := r.delete(ctx, obj, metav1.Preconditions{UID: new(obj.GetUID())})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if !errors.Is(err, ErrConflict) || retried {
			return err
		}
		// Either there is a successor, or something else, such as a webhook, has answered with a conflict.
		current, getErr := r.Get(ctx, obj.GetName())
		if errors.Is(getErr, ErrNotFound) || getErr == nil && current.GetUID() != obj.GetUID() {
			return nil
		}
		if getErr != nil {
			return getErr
		}
	}
}

// DeleteUnchanged requests the deletion of the object if it is as it was read, and returns ErrConflict if it has changed. The
// deletion itself changes the object: if the answer to a first request is lost, the repeated one conflicts with it. Therefore an
// object that is being deleted is not a conflict.
func (r *Resource[T, L]) DeleteUnchanged(ctx context.Context, obj T) error {
	err := r.delete(ctx, obj, metav1.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return err
	}
	current, getErr := r.Get(ctx, obj.GetName())
	switch {
	case errors.Is(getErr, ErrNotFound):
		return nil
	case getErr != nil:
		return getErr
	case current.GetUID() != obj.GetUID() || current.GetDeletionTimestamp() != nil:
		return nil
	}
	return err
}

func (r *Resource[T, L]) delete(ctx context.Context, obj T, preconditions metav1.Preconditions) error {
	if !isValidName(obj.GetName()) {
		return invalidNameError(r.action("delete", obj.GetName()))
	}
	_, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.requests.delete(ctx, obj.GetName(), metav1.DeleteOptions{
			Preconditions:     &preconditions,
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
	})
	return r.translate(r.action("delete", obj.GetName()), err)
}

// Patch applies the patch to the object, or to its subresource, and returns the result. The patch is a strategic merge patch, or
// for kinds of package extension a JSON merge patch. Patch returns ErrNotFound if the object does not exist, and ErrConflict if
// the patch contains another uid or resourceVersion than the object has.
func (r *Resource[T, L]) Patch(ctx context.Context, name string, patch []byte, subresources ...string) (T, error) {
	if !isValidName(name) {
		var none T
		return none, invalidNameError(r.action("patch", name))
	}
	got, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.patch(ctx, name, patch, subresources...)
	})
	return got, r.translate(r.action("patch", name), err)
}

// PatchJSON applies a JSON patch (RFC 6902), with its test operations as preconditions. If one of them fails, PatchJSON returns
// ErrConflict and nothing has changed. It also returns ErrConflict if the patch was applied, the answer was lost, and the
// repeated request no longer finds the tested values: read the object, then decide again.
func (r *Resource[T, L]) PatchJSON(ctx context.Context, name string, patch []byte) (T, error) {
	if !isValidName(name) {
		var none T
		return none, invalidNameError(r.action("patch", name))
	}
	got, err := retry(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.patchJSON(ctx, name, patch)
	})
	if isFailedPatchTest(err) {
		return got, &Error{Action: r.action("patch", name), Kind: ErrConflict, Err: err}
	}
	return got, r.translate(r.action("patch", name), err)
}

// Selection selects one object by Name, or the objects that match the label selector Labels and the field selector Fields. Name
// replaces Fields. The zero value selects all objects.
type Selection struct {
	Name   string
	Labels string
	Fields string
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
type ObjectList[T object] struct {
	Items           []T
	ResourceVersion string
	continueToken   string // for the next page; "" on the last
}

// List returns the selected objects.
func (r *Resource[T, L]) List(ctx context.Context, selection Selection) (ObjectList[T], error) {
	list, err := r.page(ctx, selection, selection.options())
	if err != nil {
		return ObjectList[T]{}, err
	}
	return newObjectList[T](list)
}

// pageSize is how many objects Find asks for at once.
const pageSize = 250

// Find returns a selected object for which matches returns true; ok is false if there is none. It reads the objects in pages, and
// stops at the first match: use it for selections that may contain all objects of a namespace or cluster.
func (r *Resource[T, L]) Find(ctx context.Context, selection Selection, matches func(T) bool) (found T, ok bool, err error) {
	options := selection.options()
	options.Limit = pageSize
	for {
		list, err := r.page(ctx, selection, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) { // the next page has expired: start over
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

func newObjectList[T object](list runtime.Object) (ObjectList[T], error) {
	snapshot := ObjectList[T]{}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return snapshot, err
	}
	snapshot.ResourceVersion, snapshot.continueToken = accessor.GetResourceVersion(), accessor.GetContinue()
	err = meta.EachListItem(list, func(item runtime.Object) error {
		snapshot.Items = append(snapshot.Items, item.(T))
		return nil
	})
	return snapshot, err
}

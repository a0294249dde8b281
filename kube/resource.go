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

// Resource is one kind of object in one namespace.
type Resource[T object, L runtime.Object] struct {
	requests[T, L]
	kind string
}

// isValidName reports whether an object can have this name: whether it is one segment of a request's path.
func isValidName(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func (r *Resource[T, L]) action(verb, name string) string {
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return verb + " " + r.kind + " " + name
}

// Get returns the object of that name, or ErrNotFound.
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

// Stream opens what a subresource of the object of that name sends, such as a log. Reading ends with the context, too.
func (r *Resource[T, L]) Stream(ctx context.Context, name, subresource string, options runtime.Object) (io.ReadCloser, error) {
	if !isValidName(name) {
		return nil, invalidNameError(r.action("get "+subresource+" of", name))
	}
	stream, err := r.stream(ctx, name, subresource, options)
	return stream, r.translate(r.action("get "+subresource+" of", name), err)
}

// Create returns the object as the API server stored it, or ErrExists. After a lost answer the
// object may be there although this call reports ErrExists: look at it, then decide.
func (r *Resource[T, L]) Create(ctx context.Context, desired T) (T, error) {
	got, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) {
		return r.create(ctx, desired)
	})
	return got, r.translate(r.action("create", desired.GetName()), err)
}

// DryRunCreate returns the object as the API server would store it, with what admission makes of it, or why it would not. Nothing
// is stored.
func (r *Resource[T, L]) DryRunCreate(ctx context.Context, desired T) (T, error) {
	got, err := retryCreate(ctx, r.retryPolicy, func(ctx context.Context) (T, error) { return r.dryRunCreate(ctx, desired) })
	return got, r.translate(r.action("create", desired.GetName()), err)
}

// Delete asks for the deletion of exactly this object and not of a successor with the same name.
// It returns nil when the object is gone already.
func (r *Resource[T, L]) Delete(ctx context.Context, obj T) error {
	for retried := false; ; retried = true {
		err := r.delete(ctx, obj, metav1.Preconditions{UID: new(obj.GetUID())})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if !errors.Is(err, ErrConflict) || retried {
			return err
		}
		// There is a successor, or somebody else, as a webhook, has answered so.
		current, getErr := r.Get(ctx, obj.GetName())
		if errors.Is(getErr, ErrNotFound) || getErr == nil && current.GetUID() != obj.GetUID() {
			return nil
		}
		if getErr != nil {
			return getErr
		}
	}
}

// DeleteUnchanged asks for the deletion of the object only as it was read; one that has changed since
// is ErrConflict. The deletion itself changes the object: when its answer is lost, the repeated request
// conflicts with the first one, so an object that is being deleted is not a conflict.
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

// Patch applies the patch to the object (or its subresource) and returns the result. It is a strategic merge patch, and
// for a kind that the API server does not know itself a JSON merge patch. An
// object that is gone is ErrNotFound; one that is not the patch's any more (its uid or resourceVersion is
// another) is ErrConflict.
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

// PatchJSON applies a JSON patch (RFC 6902) whose test operations are its preconditions. When one of them does not hold,
// the error is ErrConflict and nothing has changed. That is also the answer when the patch was applied, its answer was
// lost, and the repeated request no longer finds what it tests: read the object, then decide again.
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

// Selection names one object, or all that carry some labels, or all that match a field selector.
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

// ObjectList is what a selection held at one resource version.
type ObjectList[T object] struct {
	Items           []T
	ResourceVersion string
	continueToken   string // where the next page begins
}

// List returns the selected objects as they are now.
func (r *Resource[T, L]) List(ctx context.Context, selection Selection) (ObjectList[T], error) {
	list, err := r.page(ctx, selection, selection.options())
	if err != nil {
		return ObjectList[T]{}, err
	}
	return newObjectList[T](list)
}

// pageSize is how many objects Find asks for at once.
const pageSize = 250

// Find returns the first of the selected objects that fits, or none. It reads them in pages, and no further than it has to:
// for selections that may hold all that there is in a namespace.
func (r *Resource[T, L]) Find(ctx context.Context, selection Selection, matches func(T) bool) (found T, ok bool, err error) {
	options := selection.options()
	options.Limit = pageSize
	for {
		list, err := r.page(ctx, selection, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) { // it took so long that the pages are history: again from the first
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

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

// isName reports whether an object can have this name: whether it is one segment of a request's path.
func isName(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func (r *Resource[T, L]) action(verb, name string) string {
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return verb + " " + r.kind + " " + name
}

// Get returns the object of that name, or ErrNotFound.
func (r *Resource[T, L]) Get(ctx context.Context, name string) (T, error) {
	if !isName(name) {
		var none T
		return none, nameless(r.action("get", name))
	}
	got, err := retry(ctx, r.repetition, func(ctx context.Context) (T, error) {
		return r.get(ctx, name)
	})
	return got, r.translate(r.action("get", name), err)
}

// Stream opens what a subresource of the object of that name sends, such as a log. Reading ends with the context, too.
func (r *Resource[T, L]) Stream(ctx context.Context, name, subresource string, options runtime.Object) (io.ReadCloser, error) {
	if !isName(name) {
		return nil, nameless(r.action("get "+subresource+" of", name))
	}
	stream, err := r.stream(ctx, name, subresource, options)
	return stream, r.translate(r.action("get "+subresource+" of", name), err)
}

// Create returns the object as the API server stored it, or ErrExists. After a lost answer the
// object may be there although this call reports ErrExists: look at it, then decide.
func (r *Resource[T, L]) Create(ctx context.Context, wanted T) (T, error) {
	got, err := retryCreate(ctx, r.repetition, func(ctx context.Context) (T, error) {
		return r.create(ctx, wanted)
	})
	return got, r.translate(r.action("create", wanted.GetName()), err)
}

// Try returns the object as the API server would store it, with what admission makes of it, or why it would not. Nothing
// is stored.
func (r *Resource[T, L]) Try(ctx context.Context, wanted T) (T, error) {
	got, err := retryCreate(ctx, r.repetition, func(ctx context.Context) (T, error) { return r.try(ctx, wanted) })
	return got, r.translate(r.action("create", wanted.GetName()), err)
}

// Delete asks for the deletion of exactly this object and not of a successor with the same name.
// It returns nil when the object is gone already.
func (r *Resource[T, L]) Delete(ctx context.Context, doomed T) error {
	for again := false; ; again = true {
		err := r.delete(ctx, doomed, metav1.Preconditions{UID: new(doomed.GetUID())})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if !errors.Is(err, ErrConflict) || again {
			return err
		}
		// There is a successor, or somebody else, as a webhook, has answered so.
		now, missing := r.Get(ctx, doomed.GetName())
		if errors.Is(missing, ErrNotFound) || missing == nil && now.GetUID() != doomed.GetUID() {
			return nil
		}
		if missing != nil {
			return missing
		}
	}
}

// DeleteUnchanged asks for the deletion of the object only as it was read; one that has changed since
// is ErrConflict. The deletion itself changes the object: when its answer is lost, the repeated request
// conflicts with the first one, so an object that is being deleted is not a conflict.
func (r *Resource[T, L]) DeleteUnchanged(ctx context.Context, doomed T) error {
	err := r.delete(ctx, doomed, metav1.Preconditions{UID: new(doomed.GetUID()), ResourceVersion: new(doomed.GetResourceVersion())})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return err
	}
	now, missing := r.Get(ctx, doomed.GetName())
	switch {
	case errors.Is(missing, ErrNotFound):
		return nil
	case missing != nil:
		return missing
	case now.GetUID() != doomed.GetUID() || now.GetDeletionTimestamp() != nil:
		return nil
	}
	return err
}

func (r *Resource[T, L]) delete(ctx context.Context, doomed T, when metav1.Preconditions) error {
	if !isName(doomed.GetName()) {
		return nameless(r.action("delete", doomed.GetName()))
	}
	_, err := retry(ctx, r.repetition, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.requests.delete(ctx, doomed.GetName(), metav1.DeleteOptions{
			Preconditions:     &when,
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
	})
	return r.translate(r.action("delete", doomed.GetName()), err)
}

// Patch applies the patch to the object (or its subresource) and returns the result. It is a strategic merge patch, and
// for a kind that the API server does not know itself a JSON merge patch. An
// object that is gone is ErrNotFound; one that is not the patch's any more (its uid or resourceVersion is
// another) is ErrConflict.
func (r *Resource[T, L]) Patch(ctx context.Context, name string, patch []byte, subresources ...string) (T, error) {
	if !isName(name) {
		var none T
		return none, nameless(r.action("patch", name))
	}
	got, err := retry(ctx, r.repetition, func(ctx context.Context) (T, error) {
		return r.patch(ctx, name, patch, subresources...)
	})
	return got, r.translate(r.action("patch", name), err)
}

// PatchIf applies a JSON patch (RFC 6902) whose test operations are its preconditions. When one of them does not hold,
// the error is ErrConflict and nothing has changed. That is also the answer when the patch was applied, its answer was
// lost, and the repeated request no longer finds what it tests: read the object, then decide again.
func (r *Resource[T, L]) PatchIf(ctx context.Context, name string, patch []byte) (T, error) {
	if !isName(name) {
		var none T
		return none, nameless(r.action("patch", name))
	}
	got, err := retry(ctx, r.repetition, func(ctx context.Context) (T, error) {
		return r.patchJSON(ctx, name, patch)
	})
	if isFailedTest(err) {
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

// Snapshot is what a selection held at one resource version.
type Snapshot[T object] struct {
	Items           []T
	ResourceVersion string
	more            string // where the next page begins
}

// List returns the selected objects as they are now.
func (r *Resource[T, L]) List(ctx context.Context, which Selection) (Snapshot[T], error) {
	list, err := r.page(ctx, which, which.options())
	if err != nil {
		return Snapshot[T]{}, err
	}
	return snapshotOf[T](list)
}

// pageSize is how many objects Find asks for at once.
const pageSize = 250

// Find returns the first of the selected objects that fits, or none. It reads them in pages, and no further than it has to:
// for selections that may hold all that there is in a namespace.
func (r *Resource[T, L]) Find(ctx context.Context, which Selection, fits func(T) bool) (found T, ok bool, err error) {
	options := which.options()
	options.Limit = pageSize
	for {
		list, err := r.page(ctx, which, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) { // it took so long that the pages are history: again from the first
			options.Continue = ""
			continue
		}
		if err != nil {
			return found, false, err
		}
		page, err := snapshotOf[T](list)
		if err != nil {
			return found, false, err
		}
		if i := slices.IndexFunc(page.Items, fits); i >= 0 {
			return page.Items[i], true, nil
		}
		if options.Continue = page.more; options.Continue == "" {
			return found, false, nil
		}
	}
}

func (r *Resource[T, L]) page(ctx context.Context, which Selection, options metav1.ListOptions) (L, error) {
	list, err := retry(ctx, r.repetition, func(ctx context.Context) (L, error) { return r.list(ctx, options) })
	return list, r.translate(r.action("list", which.String()), err)
}

func snapshotOf[T object](list runtime.Object) (Snapshot[T], error) {
	snapshot := Snapshot[T]{}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return snapshot, err
	}
	snapshot.ResourceVersion, snapshot.more = accessor.GetResourceVersion(), accessor.GetContinue()
	err = meta.EachListItem(list, func(item runtime.Object) error {
		snapshot.Items = append(snapshot.Items, item.(T))
		return nil
	})
	return snapshot, err
}

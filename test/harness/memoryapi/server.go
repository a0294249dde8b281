// Package memoryapi is an API server in memory, for unit tests of code that sends requests. It stores objects like etcd, with resource
// versions, and implements the parts of the API that the CPI uses: selectors, watches, preconditions of deletions and patches, JSON, merge
// and strategic merge patches, finalizers, and garbage collection by owner references. It has no admission, defaults, validation or
// permissions: the integration tests use a real API server.
package memoryapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is a stored object.
type Object = unstructured.Unstructured

// Server is an API server in memory.
type Server struct {
	// Simulate is called with each created or changed object, also in a dry run, and can change it further like a controller or kubelet. It returns
	// whether it changed the object. It must not send requests.
	Simulate func(obj *Object) (changed bool)
	// Intercept is called before each request is handled. It returns true if it responded to the request.
	Intercept func(w http.ResponseWriter, r *http.Request) bool

	// Now is the server's clock. The default is the clock of the host.
	Now func() time.Time

	// Groups are the API groups that discovery reports. The server stores objects of all groups.
	Groups []metav1.APIGroup

	mutex    sync.Mutex
	version  int
	objects  map[key]*Object
	events   []event
	changed  sync.Cond // is broadcast after each event; unlike a channel, it belongs to no bubble of testing/synctest
	requests []string
}

type key struct{ resource, namespace, name string }

// event is a change for watches. Its version is the one of the change.
type event struct {
	version  int
	resource string
	kind     watch.EventType
	object   *Object
}

// New returns an empty server.
func New() *Server {
	s := &Server{Now: time.Now, objects: map[key]*Object{}}
	s.changed.L = &s.mutex
	return s
}

// Requests returns the requests so far, as method and path, without watches.
func (s *Server) Requests() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.requests...)
}

// target is the object or collection of a request.
type target struct {
	key
	group, version string
}

// parsePath parses /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE and the other forms of paths.
func parsePath(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.group, t.version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	return t, true
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	if s.Intercept == nil || !s.Intercept(w, r) {
		s.Handle(w, r)
	}
}

// Handle handles a request without Intercept, which can call it to lose or change the response.
func (s *Server) Handle(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/version":
		respond(w, http.StatusOK, map[string]string{"gitVersion": "v1.37.2", "major": "1", "minor": "37"})
		return
	case "/api", "/apis":
		respond(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.Groups})
		return
	}
	t, ok := parsePath(r.URL.Path)
	if !ok {
		respondError(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		return
	}
	query := r.URL.Query()
	if query.Get("watch") == "" {
		s.mutex.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mutex.Unlock()
	}
	if r.Method == http.MethodGet && t.name == "" {
		s.handleCollection(w, r, t)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var obj *Object
	status := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		obj, err = s.get(t.key)
	case http.MethodPost:
		obj, err = s.create(t, body, query.Get("dryRun") != "")
		status = http.StatusCreated
	case http.MethodPatch:
		obj, err = s.patch(t, types.PatchType(r.Header.Get("Content-Type")), body)
	case http.MethodDelete:
		obj, err = s.delete(t.key, body)
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: t.resource}, r.Method)
	}
	if err != nil {
		respondError(w, err)
		return
	}
	respond(w, status, obj.Object)
}

// handleCollection lists or watches objects.
func (s *Server) handleCollection(w http.ResponseWriter, r *http.Request, t target) {
	query := r.URL.Query()
	selected, err := newSelector(t, query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		respondError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if query.Get("watch") != "" {
		s.watch(w, r, selected, query.Get("resourceVersion"))
		return
	}
	list := s.list(t, selected)
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	}
	respond(w, http.StatusOK, list)
}

func respond(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content) // fails if the client is gone
}

func respondError(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).Status()
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	respond(w, int(status.Code), status)
}

func (s *Server) get(k key) (*Object, error) {
	obj := s.objects[k]
	if obj == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.resource}, k.name)
	}
	return obj, nil
}

// decode reads an object in JSON or Protobuf.
func decode(body []byte) (*Object, error) {
	obj := &Object{}
	if err := json.Unmarshal(body, &obj.Object); err == nil {
		return obj, nil
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return obj, err
}

func (s *Server) create(t target, body []byte, dryRun bool) (*Object, error) {
	obj, err := decode(body)
	if err != nil {
		return nil, err
	}
	if dryRun {
		if s.Simulate != nil {
			s.Simulate(obj)
		}
		return obj, nil
	}
	return s.add(t.resource, t.namespace, obj)
}

// add stores a new object.
func (s *Server) add(resource, namespace string, obj *Object) (*Object, error) {
	if obj.GetName() == "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.version))
	}
	k := key{resource, namespace, obj.GetName()}
	if s.objects[k] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.resource}, k.name)
	}
	obj.SetNamespace(namespace)
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version+1)))
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(s.Now()))
	}
	s.store(k, obj, watch.Added)
	return s.objects[k], nil
}

// store saves a version of the object, with the changes of Simulate as another version.
func (s *Server) store(k key, obj *Object, kind watch.EventType) {
	s.version++
	obj = obj.DeepCopy()
	obj.SetResourceVersion(strconv.Itoa(s.version))
	if kind == watch.Deleted {
		delete(s.objects, k)
	} else {
		s.objects[k] = obj
	}
	s.events = append(s.events, event{s.version, k.resource, kind, obj})
	s.changed.Broadcast()
	if kind == watch.Deleted {
		s.collectDependents(obj)
		return
	}
	if simulated := obj.DeepCopy(); s.Simulate != nil && s.Simulate(simulated) {
		s.store(k, simulated, watch.Modified)
	}
}

// collectDependents deletes the objects that the deleted object owned, unless another owner exists.
func (s *Server) collectDependents(owner *Object) {
	uids := map[types.UID]bool{}
	for _, obj := range s.objects {
		uids[obj.GetUID()] = true
	}
	for k, obj := range s.objects {
		owned, others := false, false
		for _, reference := range obj.GetOwnerReferences() {
			owned = owned || reference.UID == owner.GetUID()
			others = others || uids[reference.UID] && reference.UID != owner.GetUID()
		}
		if owned && !others {
			s.beginDeletion(k, obj, nil)
		}
	}
}

// beginDeletion deletes the object, or marks it as deleted, with this grace period, if it has finalizers.
func (s *Server) beginDeletion(k key, obj *Object, gracePeriod *int64) {
	if len(obj.GetFinalizers()) == 0 {
		s.store(k, obj, watch.Deleted)
		return
	}
	if obj.GetDeletionTimestamp() == nil {
		deleted := obj.DeepCopy()
		deleted.SetDeletionTimestamp(new(metav1.NewTime(s.Now())))
		deleted.SetDeletionGracePeriodSeconds(gracePeriod)
		s.store(k, deleted, watch.Modified)
	}
}

func (s *Server) delete(k key, body []byte) (*Object, error) {
	obj, err := s.get(k)
	if err != nil {
		return nil, err
	}
	var options metav1.DeleteOptions
	if len(body) > 0 && json.Unmarshal(body, &options) != nil {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != obj.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: k.resource}, k.name, fmt.Errorf("the preconditions do not match"))
		}
	}
	s.beginDeletion(k, obj, options.GracePeriodSeconds)
	return obj, nil
}

// selector selects objects of one resource.
type selector struct {
	target
	labels labels.Selector
	fields fields.Selector
}

func newSelector(t target, labelSelector, fieldSelector string) (selector, error) {
	selected := selector{target: t}
	var err error
	if selected.labels, err = labels.Parse(labelSelector); err != nil {
		return selected, err
	}
	selected.fields, err = fields.ParseSelector(fieldSelector)
	return selected, err
}

func (s selector) matches(resource string, obj *Object) bool {
	if resource != s.resource || s.namespace != "" && obj.GetNamespace() != s.namespace {
		return false
	}
	values := fields.Set{}
	for _, requirement := range s.fields.Requirements() {
		value, _, _ := unstructured.NestedString(obj.Object, strings.Split(requirement.Field, ".")...)
		values[requirement.Field] = value
	}
	return s.labels.Matches(labels.Set(obj.GetLabels())) && s.fields.Matches(values)
}

// listKinds are the kinds of lists by resource.
var listKinds = func() map[string]string {
	kinds := map[string]string{"volumesnapshots": "VolumeSnapshotList"}
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		kinds[resource.Resource] = kind.Kind + "List"
	}
	return kinds
}()

func (s *Server) list(t target, selected selector) map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	items := []any{}
	for k, obj := range s.objects {
		if selected.matches(k.resource, obj) {
			items = append(items, obj.Object)
		}
	}
	return map[string]any{
		"kind": listKinds[t.resource], "apiVersion": schema.GroupVersion{Group: t.group, Version: t.version}.String(),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
	}
}

// watch streams the changes after a resource version until the client closes the connection.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, selected selector, since string) {
	version, _ := strconv.Atoi(since)
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	flusher.Flush()
	stop := context.AfterFunc(r.Context(), func() {
		s.mutex.Lock() // so that the loop waits, or has not checked the context yet
		defer s.mutex.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for next := 0; r.Context().Err() == nil; {
		s.mutex.Lock()
		for len(s.events) == next && r.Context().Err() == nil {
			s.changed.Wait()
		}
		events := s.events[next:]
		next = len(s.events)
		s.mutex.Unlock()
		for _, e := range events {
			if e.version > version && selected.matches(e.resource, e.object) {
				if json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object.Object}) != nil {
					return
				}
			}
		}
		flusher.Flush()
	}
}

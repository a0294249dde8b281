package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("A Resource", func() {
	var api *memoryapi.Server
	var client *Client
	BeforeEach(func() {
		api = memoryapi.New()
		var err error
		client, err = NewForConfig(api.Config(), "apps", 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
	})

	newPod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "apps"}}
	}
	create := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		pod, err := client.Pods.Create(ctx, newPod(name))
		Expect(err).NotTo(HaveOccurred())
		return pod
	}
	label := func(ctx context.Context, name string) {
		GinkgoHelper()
		_, err := client.Pods.Patch(ctx, name, []byte(`{"metadata": {"labels": {"changed": "yes"}}}`))
		Expect(err).NotTo(HaveOccurred())
	}
	// once calls handle for the first request with this method, and lets the server handle the others.
	once := func(method string, handle func(w http.ResponseWriter, r *http.Request)) {
		done := false
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if done || r.Method != method {
				return false
			}
			done = true
			handle(w, r)
			return true
		}
	}
	// loseResponse lets the server handle the request, and breaks the connection.
	loseResponse := func(_ http.ResponseWriter, r *http.Request) {
		api.Handle(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	respondWith := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}

	It("returns ErrNotFound and ErrExists", func(ctx context.Context) {
		_, err := client.Pods.Get(ctx, "web")
		Expect(err).To(MatchError(ErrNotFound))
		create(ctx, "web")
		_, err = client.Pods.Create(ctx, newPod("web"))
		Expect(err).To(MatchError(ErrExists))
	})

	It("sends no request for a name that is not part of a path", func(ctx context.Context) {
		_, err := client.Pods.Get(ctx, "../web")
		Expect(err).To(HaveOccurred())
		_, err = client.Pods.Patch(ctx, "", nil)
		Expect(err).To(HaveOccurred())
		_, err = client.Pods.PatchJSON(ctx, "a/b", nil)
		Expect(err).To(HaveOccurred())
		Expect(client.Pods.Delete(ctx, newPod("a/b"))).To(Succeed(), "it cannot exist")
		Expect(api.Requests()).To(BeEmpty())
	})

	It("retries while the server is unavailable, and not after a denial", func(ctx context.Context) {
		once(http.MethodGet, respondWith(http.StatusServiceUnavailable))
		create(ctx, "web")
		_, err := client.Pods.Get(ctx, "web")
		Expect(err).NotTo(HaveOccurred())
		once(http.MethodPatch, respondWith(http.StatusForbidden))
		_, err = client.Pods.Patch(ctx, "web", []byte(`{}`))
		Expect(err).To(MatchError(ErrDenied))
	})

	It("ensures an object once, even if the response is lost", func(ctx context.Context) {
		once(http.MethodPost, loseResponse)
		pod, created, err := client.Pods.Ensure(ctx, newPod("web"), func(*corev1.Pod) (bool, error) { return true, nil }, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(created).To(BeFalse(), "it does not know")
		Expect(pod.UID).NotTo(BeEmpty())
		Expect(api.Names("pods")).To(ConsistOf("web"))
	})

	It("ensures a new object if the existing one is replaced", func(ctx context.Context) {
		old := create(ctx, "web")
		pod, created, err := client.Pods.Ensure(ctx, newPod("web"), func(*corev1.Pod) (bool, error) { return false, nil },
			func(existing *corev1.Pod) error { return client.Pods.Delete(ctx, existing) })
		Expect(err).NotTo(HaveOccurred())
		Expect(created).To(BeTrue())
		Expect(pod.UID).NotTo(Equal(old.UID))
	})

	Describe("deletes", func() {
		It("an object, and succeeds if it is gone or the response is lost", func(ctx context.Context) {
			pod := create(ctx, "web")
			once(http.MethodDelete, loseResponse)
			Expect(client.Pods.Delete(ctx, pod)).To(Succeed())
			Expect(client.Pods.DeleteAndWait(ctx, pod)).To(Succeed())
			Expect(client.Pods.DeleteUnchanged(ctx, pod)).To(Succeed())
			Expect(api.Names("pods")).To(BeEmpty())
		})

		It("no new object of the same name", func(ctx context.Context) {
			old := create(ctx, "web")
			Expect(client.Pods.Delete(ctx, old)).To(Succeed())
			create(ctx, "web")
			Expect(client.Pods.Delete(ctx, old)).To(Succeed())
			Expect(client.Pods.DeleteUnchanged(ctx, old)).To(Succeed())
			Expect(api.Names("pods")).To(ConsistOf("web"))
		})

		It("a changed object only without DeleteUnchanged", func(ctx context.Context) {
			pod := create(ctx, "web")
			label(ctx, "web")
			Expect(client.Pods.DeleteUnchanged(ctx, pod)).To(MatchError(ErrConflict))
			Expect(client.Pods.Delete(ctx, pod)).To(Succeed())
		})

		It("an unchanged object if the response is lost and the deletion changed it", func(ctx context.Context) {
			unprotected := newPod("web")
			unprotected.Finalizers = []string{"example.org/wait"}
			pod, err := client.Pods.Create(ctx, unprotected)
			Expect(err).NotTo(HaveOccurred())
			once(http.MethodDelete, loseResponse)
			Expect(client.Pods.DeleteUnchanged(ctx, pod)).To(Succeed())
		})

		It("an object in a known state only if this is certain", func(ctx context.Context) {
			pod := create(ctx, "web")
			Expect(client.Pods.DeleteInState(ctx, pod)).To(Equal(DeletedUnchanged))
			Expect(client.Pods.DeleteInState(ctx, pod)).To(Equal(DeletedLater))
			pod = create(ctx, "lost")
			once(http.MethodDelete, loseResponse)
			Expect(client.Pods.DeleteInState(ctx, pod)).To(Equal(DeletionUnconfirmed))
		})
	})

	Describe("patches", func() {
		It("an object with preconditions", func(ctx context.Context) {
			pod := create(ctx, "web")
			patch := []byte(`{"metadata": {"resourceVersion": "` + pod.ResourceVersion + `", "labels": {"a": "b"}}}`)
			Expect(client.Pods.Patch(ctx, "web", patch)).To(HaveField("Labels", HaveKeyWithValue("a", "b")))
			_, err := client.Pods.Patch(ctx, "web", patch)
			Expect(err).To(MatchError(ErrConflict))
		})

		It("an object with tests of its values", func(ctx context.Context) {
			create(ctx, "web")
			label(ctx, "web")
			patch := func(value string) error {
				_, err := client.Pods.PatchJSON(ctx, "web", []byte(`[{"op": "test", "path": "/metadata/labels/changed", "value": "`+value+`"},
					{"op": "remove", "path": "/metadata/labels/changed"}]`))
				return err
			}
			Expect(patch("no")).To(MatchError(ErrConflict))
			Expect(patch("yes")).To(Succeed())
			Expect(patch("yes")).To(MatchError(ErrConflict), "it is gone")
		})
	})

	Describe("creates or patches", func() {
		var planned int
		plan := func(existing *corev1.Pod, exists bool) (Plan[*corev1.Pod], error) {
			planned++
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"resourceVersion": func() string {
					if exists {
						return existing.ResourceVersion
					}
					return ""
				}(), "labels": map[string]string{"joined": "yes"},
			}})
			return Plan[*corev1.Pod]{Create: newPod("web"), Patch: patch}, err
		}
		BeforeEach(func() { planned = 0 })

		It("the object", func(ctx context.Context) {
			Expect(client.Pods.CreateOrPatch(ctx, "web", plan)).To(Succeed())
			Expect(client.Pods.CreateOrPatch(ctx, "web", plan)).To(Succeed())
			Expect(client.Pods.Get(ctx, "web")).To(HaveField("Labels", HaveKeyWithValue("joined", "yes")))
		})

		It("again after a conflict", func(ctx context.Context) {
			create(ctx, "web")
			once(http.MethodPatch, respondWith(http.StatusConflict))
			Expect(client.Pods.CreateOrPatch(ctx, "web", plan)).To(Succeed())
			Expect(planned).To(Equal(2))
		})

		It("nothing, and fails at once, if the namespace does not exist", func(ctx context.Context) {
			api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"details":{"kind":"namespaces","name":"apps"}}`))
				}
				return r.Method == http.MethodPost
			}
			Expect(client.Pods.CreateOrPatch(ctx, "web", plan)).To(MatchError(ErrNoNamespace))
			Expect(planned).To(Equal(1))
		})

		It("nothing if the plan is empty", func(ctx context.Context) {
			empty := func(*corev1.Pod, bool) (Plan[*corev1.Pod], error) { return Plan[*corev1.Pod]{}, nil }
			Expect(client.Pods.CreateOrPatch(ctx, "web", empty)).To(Succeed())
			Expect(api.Names("pods")).To(BeEmpty())
		})
	})

	Describe("waits", func() {
		It("until the condition is true, from a list and its changes", func(ctx context.Context) {
			pod := create(ctx, "web")
			var seen []int
			err := client.Pods.Wait(ctx, Selection{Name: "web"}, ListOf(pod), func(present []*corev1.Pod) (bool, error) {
				seen = append(seen, len(present))
				if len(seen) == 1 {
					label(ctx, "web")
				}
				if len(seen) == 2 {
					Expect(client.Pods.Delete(ctx, pod)).To(Succeed())
				}
				return len(present) == 0, nil
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(seen).To(Equal([]int{1, 1, 0}))
		})

		It("with a new list if a watch ends or its version expired", func(ctx context.Context) {
			pod := create(ctx, "web")
			watches := 0
			api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("watch") == "" {
					return false
				}
				if watches++; watches == 1 {
					respondWith(http.StatusGone)(w, r)
					return true
				}
				return watches == 2 // an empty response
			}
			Expect(client.Pods.Delete(ctx, pod)).To(Succeed())
			Expect(client.Pods.Wait(ctx, Selection{Name: "web"}, ListOf(pod), func(present []*corev1.Pod) (bool, error) {
				return len(present) == 0, nil
			})).To(Succeed())
			lists := 0
			for _, request := range api.Requests() {
				if strings.HasSuffix(request, "/pods") && strings.HasPrefix(request, "GET") {
					lists++
				}
			}
			Expect(lists).To(Equal(1))
		})

		It("until the context ends", func() {
			memoryapi.InVirtualTime(suite, func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				err := client.Pods.Wait(ctx, Selection{}, nil, func([]*corev1.Pod) (bool, error) { return false, nil })
				Expect(err).To(And(MatchError(ErrTimeout), MatchError(ContainSubstring("wait for Pod apps/(all)"))))
			})
		})
	})

	It("lists and finds selected objects", func(ctx context.Context) {
		create(ctx, "web")
		create(ctx, "db")
		label(ctx, "db")
		list, err := client.Pods.List(ctx, Selection{Labels: "changed=yes"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(ConsistOf(HaveField("Name", "db")))
		_, found, err := client.Pods.Find(ctx, Selection{}, func(pod *corev1.Pod) bool { return pod.Name == "none" })
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeFalse())
		Expect(client.ListActivePods(ctx, "changed=yes")).To(ConsistOf("db"))
	})

	It("does not store a dry run", func(ctx context.Context) {
		_, err := client.Pods.DryRunCreate(ctx, newPod("web"))
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Names("pods")).To(BeEmpty())
	})

	It("of another API group fails without a request if there is no connection", func(ctx context.Context) {
		client.config.Host = "https://["
		_, err := client.PodDisruptionBudgets().Get(ctx, "web")
		Expect(err).To(MatchError(HavePrefix("get PodDisruptionBudget apps/web: host must be a URL")))
		Expect(api.Requests()).To(BeEmpty())
	})

	It("records Events", func(ctx context.Context) {
		pod := create(ctx, "web")
		Expect(client.RecordEvent(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "event", Namespace: "apps"}, InvolvedObject: client.Pods.Reference(pod), Reason: "Attached",
		})).To(Succeed())
		Expect(client.DiagnosePod(ctx, pod)).NotTo(BeEmpty())
	})
})

var _ = DescribeTable("The state of a Pod", func(status corev1.PodStatus, active, finished, ready bool) {
	pod := &corev1.Pod{Status: status}
	Expect(IsActive(pod)).To(Equal(active))
	Expect(IsFinished(pod)).To(Equal(finished))
	Expect(IsReady(pod)).To(Equal(ready))
},
	Entry("pending", corev1.PodStatus{Phase: corev1.PodPending}, true, false, false),
	Entry("ready", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		true, false, true),
	Entry("failed", corev1.PodStatus{Phase: corev1.PodFailed}, false, true, false),
	Entry("succeeded", corev1.PodStatus{Phase: corev1.PodSucceeded}, false, true, false),
)

var _ = Describe("The clock of the API server", func() {
	var api *memoryapi.Server
	var client *Client
	year := 365 * 24 * time.Hour
	BeforeEach(func() {
		api = memoryapi.New()
		api.Now = func() time.Time { return time.Now().Add(year) }
		var err error
		client, err = NewForConfig(api.Config(), "apps", 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
	})

	It("is unknown before the first response", func() {
		Expect(client.ServerTime(time.Now())).To(BeZero())
	})

	It("is derived from the first response", func(ctx context.Context) {
		started := time.Now()
		_, err := client.Pods.List(ctx, Selection{})
		Expect(err).NotTo(HaveOccurred())
		api.Now = time.Now
		_, err = client.Pods.List(ctx, Selection{})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.ServerTime(started)).To(BeTemporally("~", started.Add(year), 30*time.Second))
	})

	It("is not derived from the response of a load balancer", func(ctx context.Context) {
		unavailable := true
		api.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			if unavailable {
				unavailable = false
				w.Header().Set("Date", time.Now().Format(http.TimeFormat))
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			return false
		}
		server, err := client.GetServerInfo(ctx)
		Expect(err).To(HaveOccurred())
		Expect(server.ClockSkew).To(BeZero())
		server, err = client.GetServerInfo(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(server.ClockSkew).To(BeNumerically("~", year, 30*time.Second))
	})
})

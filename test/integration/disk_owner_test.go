package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/director"
)

// Calls that cross each other, found by review. The interleaving explorer (explorer_test.go) looks for others.
var _ = Describe("A disk about which two calls run at once", func() {
	var (
		w    world
		vm   string
		disk string
	)
	BeforeEach(func(ctx context.Context) {
		w, vm = newWorldWithVM(ctx)
		disk = w.usedDisk(ctx, vm, map[string]any{})
	})
	attachment := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		return orNil(cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{}))
	}
	ofAttachment := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+disk+"-attachment") }
	ofDisk := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+disk) }
	createsPod := func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
	}

	It("keeps the successor that another update_disk has returned, when a late one undoes its own", func(ctx context.Context) {
		var ended atomic.Bool
		undoes, allow := held(func(_ int, r *http.Request) bool {
			if ofAttachment(r) && r.Method == http.MethodDelete {
				ended.Store(true)
			}
			successor := r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/persistentvolumeclaims/")
			return ended.Load() && (successor || ofAttachment(r) && r.Method == http.MethodGet)
		})
		late := begin(ctx, w.withTimeouts(map[string]any{"update_disk": "8s"}), "update_disk", disk, 64, toXFS)
		w.copyRuns(ctx, disk)
		Eventually(undoes).WithContext(ctx).Should(BeClosed(), "the late call has ended its copy")

		again := begin(ctx, w.asAdministrator(), "update_disk", disk, 64, toXFS)
		w.copyRuns(ctx, disk)
		w.endCopy(ctx, disk, "0")
		answered := <-again
		Expect(answered.Error).To(BeNil())

		allow()
		Expect((<-late).Error).NotTo(BeNil())
		Expect(w.disks(ctx)).To(ConsistOf(disk, answered.Text()))
		w.directly(ctx, "attach_disk", vm, answered.Text())
	})

	It("stays the next VM's, when a failed attach_disk repeats its release", func(ctx context.Context) {
		other := w.createVM(ctx, "two", disk)
		var ended, lost atomic.Bool
		released, allowed := make(chan struct{}), make(chan struct{})
		allow := sync.OnceFunc(func() { close(allowed) })
		DeferCleanup(allow)
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/hold": "for ever"})
			if r.Method == http.MethodDelete && ofAttachment(r) {
				ended.Store(true)
			}
			if r.Method == http.MethodPatch && ofDisk(r) && ended.Load() && !lost.Swap(true) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				close(released)
				<-allowed
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
		late := begin(ctx, w.withTimeouts(map[string]any{"attach_disk": "6s"}), "attach_disk", vm, disk)
		Eventually(released).WithContext(ctx).Should(BeClosed())
		direct := w
		direct.directly(ctx, "attach_disk", other, disk)
		allow()
		Expect((<-late).Error).NotTo(BeNil())

		w.takeAway(ctx, disk+"-attachment")
		response, err := w.asAdministrator().Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(HaveField("Message", ContainSubstring("is attached to VM "+other)))
	})

	It("is not kept by an attach_disk that fails after the answer to its POST was lost", func(ctx context.Context) {
		var once sync.Once
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			lost := false
			if createsPod(r) {
				annotateNewPod(r, map[string]string{"test/hold": "for ever"})
				once.Do(func() { lost = true })
			}
			if lost {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
		response, err := w.withTimeouts(map[string]any{"attach_disk": "6s"}).Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		proxy.Reset(nil)
		Expect(w.objects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
		w.must(ctx, "attach_disk", w.createVM(ctx, "two", disk), disk)
	})

	It("keeps the attachment that another attach_disk waits for, when a late one fails", func(ctx context.Context) {
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/hold": "yes"})
			next.ServeHTTP(rw, r)
		})
		late := begin(ctx, w.withTimeouts(map[string]any{"attach_disk": "8s"}), "attach_disk", vm, disk)
		Eventually(attachment).WithContext(ctx).ShouldNot(BeNil())
		first := attachment(ctx)
		again := begin(ctx, w.asAdministrator(), "attach_disk", vm, disk)
		Expect((<-late).Error).NotTo(BeNil())
		Expect(attachment(ctx)).To(And(Not(BeNil()), HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		Expect(w.annotate(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
		Expect((<-again).Error).To(BeNil())
	})

	It("keeps the copy that a repeated update_disk has adopted, when orphans are removed", func(ctx context.Context) {
		w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		calling, cancel := context.WithCancel(ctx)
		cut := make(chan error)
		go func() {
			_, err := w.Call(calling, "update_disk", disk, 64, toXFS)
			cut <- err
		}()
		w.copyRuns(ctx, disk)
		cancel()
		Expect(<-cut).To(HaveOccurred())
		const call = "bosh.cloudfoundry.org/call"
		first := attachment(ctx)
		grace := []string{"-grace", "15s"}
		Eventually(func() []string { return w.collect(ctx, director.UUID, grace...) }).WithContext(ctx).
			Should(ContainElement(ContainSubstring(first.Name)), "it is older than any call")
		again := begin(ctx, w.asAdministrator(), "update_disk", disk, 64, toXFS)
		Eventually(func() string { return attachment(ctx).Annotations[call] }).WithContext(ctx).ShouldNot(Equal(first.Annotations[call]))
		w.collect(ctx, director.UUID, append(grace, "-confirm")...)
		Expect(attachment(ctx)).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		w.endCopy(ctx, disk, "0")
		Expect((<-again).Error).To(BeNil())
	})

	It("is not marked again with the copy that an update_disk in place has abandoned", func(ctx context.Context) {
		failed := begin(ctx, w.Director, "update_disk", disk, 64, toXFS)
		w.copyRuns(ctx, disk)
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodDelete {
				http.Error(rw, "no", http.StatusForbidden)
				return
			}
			next.ServeHTTP(rw, r)
		})
		w.endCopy(ctx, disk, "1")
		Expect((<-failed).Error).NotTo(BeNil())
		proxy.Reset(nil)
		Expect(w.claim(ctx, disk).Annotations).To(HaveKey("bosh.cloudfoundry.org/copied-to"))
		w.must(ctx, "update_disk", disk, 64, map[string]any{"labels": map[string]any{"team": "a"}})
		Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
		Expect(w.claim(ctx, disk).Annotations).NotTo(HaveKey("bosh.cloudfoundry.org/copied-to"))
	})

	It("is not attached again by a get_disks between the end of its attachment and its release", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.annotate(ctx, disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		var once sync.Once
		releases, allow := held(func(_ int, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "" {
				once.Do(func() { _ = w.annotate(ctx, disk+"-attachment", "test/stays", nil) })
			}
			return r.Method == http.MethodPatch && ofDisk(r)
		})
		detaching := begin(ctx, w.Director, "detach_disk", vm, disk)
		Eventually(releases).WithContext(ctx).Should(BeClosed())
		direct := w
		direct.directly(ctx, "get_disks", vm)
		allow()
		Expect((<-detaching).Error).To(BeNil())
		proxy.Reset(nil)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		w.must(ctx, "attach_disk", w.createVM(ctx, "two", disk), disk)
	})

	It("stays another VM's, which has lost its attachment, when an attach_disk that has found it free goes on", func(ctx context.Context) {
		other := w.createVM(ctx, "two", disk)
		creates, allow := held(func(_ int, r *http.Request) bool { return createsPod(r) })
		late := begin(ctx, w.Director, "attach_disk", vm, disk)
		Eventually(creates).WithContext(ctx).Should(BeClosed())
		direct := w
		direct.directly(ctx, "attach_disk", other, disk)
		w.takeAway(ctx, disk+"-attachment")
		allow()
		Expect((<-late).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+other)))
	})

	It("is never opened for a VM by a POST that arrives when another has it", func(ctx context.Context) {
		other := w.createVM(ctx, "two", disk)
		creates, allow := held(func(_ int, r *http.Request) bool { return createsPod(r) })
		late := begin(ctx, w.Director, "attach_disk", vm, disk)
		Eventually(creates).WithContext(ctx).Should(BeClosed())
		direct := w
		direct.directly(ctx, "attach_disk", other, disk)
		w.takeAway(ctx, disk+"-attachment")
		claims, claim := held(func(_ int, r *http.Request) bool { return r.Method == http.MethodPatch && ofDisk(r) })
		allow()
		Eventually(claims).WithContext(ctx).Should(BeClosed())
		Expect(attachment(ctx)).To(And(HaveField("Spec.NodeName", BeEmpty()), HaveField("Spec.SchedulingGates", Not(BeEmpty()))))
		claim()
		Expect((<-late).Error).NotTo(BeNil())
		Eventually(attachment).WithContext(ctx).Should(BeNil())
	})
})

var _ = Describe("A disk whose owner record is damaged", func() {
	label := func(ctx context.Context, w world, disk, patch string) {
		GinkgoHelper()
		_, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"metadata":`+patch+`}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	const repair = "kubectl bosh collect --director " + director.UUID + " --confirm"

	for what, damage := range map[string]struct{ patch, message string }{
		"it names no Pod":                 {`{"labels":{"` + manifest.LabelVM + `":"agent-gone"}}`, "is damaged"},
		"it names no VM":                  {`{"annotations":{"` + manifest.AnnotationOwner + `":"1"}}`, "is damaged"},
		"it names a VM that is not there": {`{"labels":{"` + manifest.LabelVM + `":"agent-gone"},"annotations":{"` + manifest.AnnotationOwner + `":"1"}}`, "VM agent-gone, which does not exist"},
	} {
		It("is refused by every call that would use it, and repaired by -collect: "+what, func(ctx context.Context) {
			w, vm := newWorldWithVM(ctx)
			disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			label(ctx, w, disk, damage.patch)
			before := w.claim(ctx, disk)
			for method, arguments := range map[string][]any{
				"attach_disk": {vm, disk}, "delete_disk": {disk}, "resize_disk": {disk, 128}, "update_disk": {disk, 64, toXFS},
			} {
				Expect(w.fails(ctx, method, arguments...).Message).To(And(ContainSubstring(damage.message), ContainSubstring(repair)), method)
			}
			after := w.claim(ctx, disk)
			Expect(after.Labels).To(Equal(before.Labels))
			Expect(after.Annotations).To(Equal(before.Annotations))
			Expect(w.objects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))

			w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
			Expect(w.collect(ctx, director.UUID)).To(ContainElement(And(ContainSubstring(disk), ContainSubstring("would be released"))))
			w.collect(ctx, director.UUID, "-confirm")
			w.must(ctx, "attach_disk", vm, disk)
		})
	}

	It("exists for has_disk while its VM uses it, when somebody deletes its PVC", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		Expect(cluster.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, disk, metav1.DeleteOptions{})).To(Succeed())
		Expect(w.claim(ctx, disk).DeletionTimestamp).NotTo(BeNil(), "the attachment keeps it")
		Expect(w.must(ctx, "has_disk", disk).Result).To(MatchJSON("true"))
	})

	It("is replaced by its successor although the answer to its deletion is lost", func(ctx context.Context) {
		w, vm := newWorldWithVM(ctx)
		disk := w.usedDisk(ctx, vm, map[string]any{})
		successor := w.must(ctx, "update_disk", disk, 64, toBlock).Text()
		var once sync.Once
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			lost := false
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+disk) {
				once.Do(func() { lost = true })
			}
			if lost {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
		w.must(ctx, "attach_disk", vm, successor)
		Eventually(w.disks).WithContext(ctx).Should(ConsistOf(successor))
	})

	It("becomes free with delete_vm of the VM that it names, whose Pod is gone", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		w.takeAway(ctx, vm)
		w.must(ctx, "delete_vm", vm)
		w.must(ctx, "attach_disk", w.createVM(ctx, "two", disk), disk)
	})
})

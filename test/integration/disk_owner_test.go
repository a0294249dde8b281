package integration

import (
	"bytes"
	"context"
	"io"
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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// Races found by reviews. The interleaving explorer (chaos_explorer_test.go) searches for others.
var _ = Describe("A disk in two calls at the same time", func() {
	var (
		env  testEnv
		vm   string
		disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm = newTestEnvWithVM(ctx)
		disk = env.createUsedDisk(ctx, vm, map[string]any{})
	})
	attachmentPod := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		return nilIfNotFound(cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{}))
	}
	isAboutAttachment := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+disk+"-attachment") }
	isAboutPVC := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+disk) }
	isPodCreate := func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
	}

	It("stays attached when a delayed attach_disk finds that a newer attachment Pod has the name of its own", func(ctx context.Context) {
		started, allow := holdRequests(func(_ int, r *http.Request) bool { return r.Method == http.MethodPatch && isAboutPVC(r) })
		delayed := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(started).WithContext(ctx).Should(BeClosed())

		env.mustCallAsAdmin(ctx, "detach_disk", vm, disk)
		env.mustCallAsAdmin(ctx, "attach_disk", vm, disk)
		allow()
		Expect((<-delayed).Error).To(HaveField("Message", ContainSubstring("was deleted before it started")))
		owner, _ := manifest.DiskPVC{PVC: env.getPVC(ctx, disk)}.Owner()
		Expect(owner).To(Equal(manifest.DiskOwner{VM: vm, Pod: attachmentPod(ctx).UID}))
	})

	It("stays attached if another client deletes the attachment Pod of two attach_disk calls, and one of them fails", func(ctx context.Context) {
		started := apiproxy.NewGate()
		DeferCleanup(started.Open)
		var lost atomic.Bool
		proxy.Reset(started.Hold(apiproxy.ResponseLost, func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPatch && isAboutAttachment(r) && lost.CompareAndSwap(false, true)
		}))
		failing := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(started.Reached).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "attach_disk", vm, disk)
		env.deletePodAndWait(ctx, disk+"-attachment")
		started.Open()
		Expect((<-failing).Error).To(HaveField("Message", ContainSubstring("was deleted before it started")))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
	})

	It("stays attached if another attach_disk succeeds before a failed one deletes the attachment Pod", func(ctx context.Context) {
		deleting, allow := holdRequests(func(_ int, r *http.Request) bool {
			annotateNewPod(r, map[string]string{"test/hold": "yes"})
			return r.Method == http.MethodDelete && isAboutAttachment(r)
		})
		failing := startCall(ctx, env.directorWithTimeouts(map[string]any{"attach_disk": waitTimeout}), "attach_disk", vm, disk)
		Eventually(deleting).WithContext(ctx).Should(BeClosed())
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
		env.mustCallAsAdmin(ctx, "attach_disk", vm, disk)
		env.deletePodAndWait(ctx, disk+"-attachment")
		allow()
		Expect((<-failing).Error).To(HaveField("Message", ContainSubstring("timed out attaching disk")))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
	})

	for method, arguments := range map[string]func() []any{
		"detach_disk": func() []any { return []any{vm, disk} },
		"resize_disk": func() []any { return []any{disk, 64} },
		"delete_vm":   func() []any { return []any{vm} },
	} {
		It("stays free if "+method+" deletes the attachment Pod of an attach_disk that records its owner late", func(ctx context.Context) {
			assigning, allow := holdRequests(func(_ int, r *http.Request) bool { return r.Method == http.MethodPatch && isAboutPVC(r) })
			late := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(assigning).WithContext(ctx).Should(BeClosed())
			env.mustCallAsAdmin(ctx, method, arguments()...)
			allow()
			Expect((<-late).Error).NotTo(BeNil())
			Expect(env.getPVC(ctx, disk).Labels).NotTo(HaveKey(manifest.LabelVM))
		})
	}

	It("stays free if the request with which a failed attach_disk records its owner arrives later", func(ctx context.Context) {
		var deliver func() int
		proxy.Reset(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if r.Method != http.MethodPatch || !isAboutPVC(r) || !bytes.Contains(body, []byte(`"`+manifest.LabelVM+`":"`+vm+`"`)) {
				next.ServeHTTP(w, r)
				return
			}
			delayed := r.Clone(context.WithoutCancel(ctx))
			delayed.Body = io.NopCloser(bytes.NewReader(body))
			deliver = func() int {
				response := httptest.NewRecorder()
				next.ServeHTTP(response, delayed)
				return response.Code
			}
			panic(http.ErrAbortHandler)
		})
		failed := env.directorWithTimeouts(map[string]any{"request": "1s"})
		Eventually(startCall(ctx, failed, "attach_disk", vm, disk)).WithContext(ctx).Should(Receive(HaveField("Error", Not(BeNil()))))
		Expect(deliver()).To(Equal(http.StatusConflict))
		Expect(env.getPVC(ctx, disk).Labels).NotTo(HaveKey(manifest.LabelVM))
	})

	for method, arguments := range map[string]func(ctx context.Context) []any{
		"resize_disk": func(context.Context) []any { return []any{disk, 64} },
		"attach_disk": func(ctx context.Context) []any { return []any{env.createVM(ctx, "two", disk), disk} },
	} {
		It("stays attached if "+method+" deletes its attachment Pod as one that never started, and another client deletes it after its start", func(ctx context.Context) {
			crossing := arguments(ctx)
			assigning, deleting := apiproxy.NewGate(), apiproxy.NewGate()
			DeferCleanup(assigning.Open)
			DeferCleanup(deleting.Open)
			assignment := assigning.Hold(apiproxy.HeldBefore, func(_ int, r *http.Request) bool { return r.Method == http.MethodPatch && isAboutPVC(r) })
			deletion := deleting.Hold(apiproxy.HeldBefore, func(_ int, r *http.Request) bool { return r.Method == http.MethodDelete && isAboutAttachment(r) })
			proxy.Reset(func(n int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
				assignment(n, rw, r, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { deletion(n, rw, r, next) }))
			})
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(assigning.Reached).WithContext(ctx).Should(BeClosed())
			failing := startCall(ctx, env.Director, method, crossing...)
			Eventually(deleting.Reached).WithContext(ctx).Should(BeClosed())
			assigning.Open()
			Expect((<-attaching).Error).To(BeNil())
			env.deletePodAndWait(ctx, disk+"-attachment")
			deleting.Open()
			Expect((<-failing).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+vm)))
			Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		})
	}

	It("is not attached by an attachment Pod that is deleted before it starts, while the API server still has it", func(ctx context.Context) {
		var release func()
		var once sync.Once
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPatch && isAboutAttachment(r) {
				once.Do(func() {
					defer GinkgoRecover()
					release = env.blockDeletion(ctx, podResource, disk+"-attachment")
					Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
				})
			}
			next.ServeHTTP(rw, r)
		})
		attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(attachmentPod).WithContext(ctx).Should(And(Not(BeNil()), HaveField("DeletionTimestamp", Not(BeNil())), HaveField("Spec.SchedulingGates", BeEmpty())))
		release()
		Expect((<-attaching).Error).To(HaveField("Message", ContainSubstring("was deleted before it started")))
		proxy.Reset(nil)
		env.mustCall(ctx, "attach_disk", vm, disk)
	})

	It("stays with the next VM when a failed attach_disk retries its release", func(ctx context.Context) {
		other := env.createVM(ctx, "two", disk)
		var deleteSent, lost atomic.Bool
		released, allowed := make(chan struct{}), make(chan struct{})
		allow := sync.OnceFunc(func() { close(allowed) })
		DeferCleanup(allow)
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/hold": "forever"})
			if r.Method == http.MethodDelete && isAboutAttachment(r) {
				deleteSent.Store(true)
			}
			if r.Method == http.MethodPatch && isAboutPVC(r) && deleteSent.Load() && !lost.Swap(true) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				close(released)
				<-allowed
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
		late := startCall(ctx, env.directorWithTimeouts(map[string]any{"attach_disk": waitTimeout}), "attach_disk", vm, disk)
		Eventually(released).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "attach_disk", other, disk)
		allow()
		Expect((<-late).Error).NotTo(BeNil())

		env.deletePodAndWait(ctx, disk+"-attachment")
		response, err := env.adminDirector().Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(HaveField("Message", ContainSubstring("is attached to VM "+other)))
	})

	It("is released by an attach_disk that fails after the response to its POST was lost", func(ctx context.Context) {
		var once sync.Once
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			lost := false
			if isPodCreate(r) {
				annotateNewPod(r, map[string]string{"test/hold": "forever"})
				once.Do(func() { lost = true })
			}
			if lost {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
		response, err := env.directorWithTimeouts(map[string]any{"attach_disk": waitTimeout}).Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		proxy.Reset(nil)
		Expect(env.listObjects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
		env.mustCall(ctx, "attach_disk", env.createVM(ctx, "two", disk), disk)
	})

	It("keeps the attachment Pod that a retried attach_disk waits for when a late one fails", long, func(ctx context.Context) {
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, map[string]string{"test/hold": "yes"})
			next.ServeHTTP(rw, r)
		})
		late := startCall(ctx, env.directorWithTimeouts(map[string]any{"attach_disk": "20s"}), "attach_disk", vm, disk)
		Eventually(attachmentPod).WithContext(ctx).ShouldNot(BeNil())
		first := attachmentPod(ctx)
		retried := startCall(ctx, env.adminDirector(), "attach_disk", vm, disk)
		Expect((<-late).Error).NotTo(BeNil())
		Expect(attachmentPod(ctx)).To(And(Not(BeNil()), HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
		Expect((<-retried).Error).To(BeNil())
	})

	It("is not attached again by a get_disks between the exit of its attachment Pod and its release", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		var once sync.Once
		releaseStarted, allow := holdRequests(func(_ int, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "" {
				once.Do(func() { _ = env.annotatePod(ctx, disk+"-attachment", "test/stays", nil) })
			}
			return r.Method == http.MethodPatch && isAboutPVC(r)
		})
		detaching := startCall(ctx, env.Director, "detach_disk", vm, disk)
		Eventually(releaseStarted).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "get_disks", vm)
		allow()
		Expect((<-detaching).Error).To(BeNil())
		proxy.Reset(nil)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		env.mustCall(ctx, "attach_disk", env.createVM(ctx, "two", disk), disk)
	})

	It("stays with its VM, even without an attachment Pod, when an attach_disk that found it free continues", func(ctx context.Context) {
		other := env.createVM(ctx, "two", disk)
		createStarted, allow := holdRequests(func(_ int, r *http.Request) bool { return isPodCreate(r) })
		late := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(createStarted).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "attach_disk", other, disk)
		env.deletePodAndWait(ctx, disk+"-attachment")
		allow()
		Expect((<-late).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+other)))
	})

	It("is not opened for a VM by a POST that arrives after it was attached to another VM", func(ctx context.Context) {
		other := env.createVM(ctx, "two", disk)
		createStarted, allow := holdRequests(func(_ int, r *http.Request) bool { return isPodCreate(r) })
		late := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(createStarted).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "attach_disk", other, disk)
		env.deletePodAndWait(ctx, disk+"-attachment")
		patchStarted, allowPatch := holdRequests(func(_ int, r *http.Request) bool { return r.Method == http.MethodPatch && isAboutPVC(r) })
		allow()
		Eventually(patchStarted).WithContext(ctx).Should(BeClosed())
		Expect(attachmentPod(ctx)).To(And(HaveField("Spec.NodeName", BeEmpty()), HaveField("Spec.SchedulingGates", Not(BeEmpty()))))
		allowPatch()
		Expect((<-late).Error).NotTo(BeNil())
		Eventually(attachmentPod).WithContext(ctx).Should(BeNil())
	})
})

var _ = Describe("A disk", func() {
	patchMetadata := func(ctx context.Context, env testEnv, disk, patch string) {
		GinkgoHelper()
		_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"metadata":`+patch+`}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	const repair = "kubectl bosh collect --director " + director.UUID + " --confirm"

	for recordedOwner, damage := range map[string]struct{ patch, message string }{
		"no Pod":                   {`{"labels":{"` + manifest.LabelVM + `":"agent-gone"}}`, "is invalid"},
		"no VM":                    {`{"annotations":{"` + manifest.AnnotationOwner + `":"1"}}`, "is invalid"},
		"a VM that does not exist": {`{"labels":{"` + manifest.LabelVM + `":"agent-gone"},"annotations":{"` + manifest.AnnotationOwner + `":"1"}}`, "VM agent-gone, which does not exist"},
	} {
		It("is rejected by all calls that use it, and repaired by -collect, if its owner record names "+recordedOwner, func(ctx context.Context) {
			env, vm := newTestEnvWithVM(ctx)
			disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			patchMetadata(ctx, env, disk, damage.patch)
			previous := env.getPVC(ctx, disk)
			for method, arguments := range map[string][]any{
				"attach_disk": {vm, disk}, "delete_disk": {disk}, "resize_disk": {disk, 128}, "update_disk": {disk, 64, toBlock},
			} {
				Expect(env.mustFail(ctx, method, arguments...).Message).To(And(ContainSubstring(damage.message), ContainSubstring(repair)), method)
			}
			after := env.getPVC(ctx, disk)
			Expect(after.Labels).To(Equal(previous.Labels))
			Expect(after.Annotations).To(Equal(previous.Annotations))
			Expect(env.listObjects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))

			env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
			Expect(env.runCollect(ctx, director.UUID)).To(ContainElement(And(ContainSubstring(disk), ContainSubstring("would be released"))))
			env.runCollect(ctx, director.UUID, "-confirm")
			env.mustCall(ctx, "attach_disk", vm, disk)
		})
	}

	It("becomes free with delete_vm of its VM, after another client deleted the VM Pod", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		env.deletePodAndWait(ctx, vm)
		env.mustCall(ctx, "delete_vm", vm)
		env.mustCall(ctx, "attach_disk", env.createVM(ctx, "two", disk), disk)
	})
})

package integration

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/test/director"
)

// A CPI process may survive the director's worker that has started it, and end after the worker that repeats its
// call.
var _ = Describe("A call whose process survives, and that another repeats", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	const call = "bosh.cloudfoundry.org/call"
	pod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		return nilIfNotFound(cluster.CoreV1().Pods(env.namespace).Get(ctx, name, metav1.GetOptions{}))
	}

	It("create_vm leaves the machine alone when it fails late", func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/hold": "yes"}}
		arguments := []any{"one", stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{}}
		late := startCall(ctx, env.directorWithTimeouts(map[string]any{"create_vm": "8s"}), "create_vm", arguments...)
		Eventually(pod).WithContext(ctx).WithArguments("agent-one").ShouldNot(BeNil())
		first := pod(ctx, "agent-one")
		again := startCall(ctx, env.Director, "create_vm", arguments...)
		Eventually(func() string { return pod(ctx, "agent-one").Annotations[call] }).WithContext(ctx).ShouldNot(Equal(first.Annotations[call]))

		Expect((<-late).Error).NotTo(BeNil())
		Expect(pod(ctx, "agent-one")).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		Expect(env.annotatePod(ctx, "agent-one", "test/hold", nil)).To(Succeed())
		Expect((<-again).Error).To(BeNil())
		Expect(env.listObjects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
	})

	It("resize_disk notes no smaller size than another has noted meanwhile", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		var patches atomic.Int32
		patchArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPatch && patches.Add(1) == 2 // the first asks for the room
		})
		late := startCall(ctx, env.Director, "resize_disk", disk, 128)
		Eventually(patchArrived).WithContext(ctx).Should(BeClosed())
		env.mustCall(ctx, "resize_disk", disk, 256)
		allow()
		Expect((<-late).Error).To(HaveField("Type", "Bosh::Clouds::NotSupported"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "256"))
	})

	Describe("attach_disk of a disk that is being deleted", func() {
		var vm, disk string
		BeforeEach(func(ctx context.Context) { env, vm, disk = newTestEnvWithDisk(ctx) })
		attachment := func() string { return "Pod/" + disk + "-attachment" }

		It("has the delete_disk refused that had looked at the disk before", func(ctx context.Context) {
			deleteArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
				annotateNewPod(r, map[string]string{"test/hold": "until the disk is to be deleted"})
				return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+disk)
			})
			deletion := startCall(ctx, env.Director, "delete_disk", disk)
			Eventually(deleteArrived).WithContext(ctx).Should(BeClosed())
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(func() map[string]string { return env.getPVC(ctx, disk).Labels }).WithContext(ctx).
				Should(HaveKeyWithValue("bosh.cloudfoundry.org/vm", vm), "before the attachment runs")
			allow()
			Expect((<-deletion).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+vm)))
			Expect(env.annotatePod(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
			Expect((<-attaching).Error).To(BeNil())
		})

		It("is told so at once, and leaves nothing, when the delete_disk came first", func(ctx context.Context) {
			createArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
				return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
			})
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(createArrived).WithContext(ctx).Should(BeClosed())
			env.mustCallAsAdmin(ctx, "delete_disk", disk)
			allow()
			Expect((<-attaching).Error).To(And(HaveField("Type", "Bosh::Clouds::DiskNotFound"), HaveField("Message", ContainSubstring("was deleted while"))))
			Eventually(env.listObjects).WithContext(ctx).ShouldNot(ContainElement(attachment()))
		})
	})

	Describe("update_disk", func() {
		var vm, disk string
		BeforeEach(func(ctx context.Context) {
			vm = env.createVM(ctx, "one")
			disk = env.createUsedDisk(ctx, vm, map[string]any{})
		})

		It("leaves the copy alone when its own time is over", func(ctx context.Context) {
			late := startCall(ctx, env.directorWithTimeouts(map[string]any{"update_disk": "8s"}), "update_disk", disk, 64, toXFS)
			env.waitCopyRunning(ctx, disk)
			first := pod(ctx, disk+"-attachment")
			again := startCall(ctx, env.Director, "update_disk", disk, 64, toXFS)
			Eventually(func() string { return pod(ctx, disk+"-attachment").Annotations[call] }).WithContext(ctx).
				ShouldNot(Equal(first.Annotations[call]))

			Expect((<-late).Error.Message).To(ContainSubstring("timeouts.update_disk"))
			Expect(pod(ctx, disk+"-attachment")).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
			env.setCopyExitCode(ctx, disk, "0")
			answered := <-again
			Expect(answered.Error).To(BeNil())
			Expect(env.listDisks(ctx)).To(ConsistOf(disk, answered.Text()))
		})

		It("keeps the disk that the other has answered, when it finds late that the copy is gone", func(ctx context.Context) {
			stalled := stallPodRequests()
			late := startCall(ctx, env.Director, "update_disk", disk, 64, toXFS)
			env.waitCopyRunning(ctx, disk)
			stalled.breakWatches()
			env.setCopyExitCode(ctx, disk, "0")
			answered := env.mustCallAsAdmin(ctx, "update_disk", disk, 64, toXFS)

			stalled.release()
			Expect((<-late).Error).NotTo(BeNil())
			proxy.Reset(nil)
			Expect(env.listDisks(ctx)).To(ConsistOf(disk, answered.Text()))
			env.mustCall(ctx, "attach_disk", vm, answered.Text())
		})
	})
})

// startCall makes the call beside the spec, and hands over its response.
func startCall(ctx context.Context, caller *director.Director, method string, arguments ...any) <-chan director.Response {
	responses := make(chan director.Response, 1)
	go func() {
		defer GinkgoRecover()
		response, err := caller.Call(ctx, method, arguments...)
		Expect(err).NotTo(HaveOccurred())
		responses <- response
	}()
	return responses
}

// holdRequests makes the proxy keep the requests of a kind until allow is called. arrived is closed with the first.
func holdRequests(matches func(i int, r *http.Request) bool) (arrived <-chan struct{}, allow func()) {
	arrivedCh, released := make(chan struct{}), make(chan struct{})
	allow = sync.OnceFunc(func() { close(released) })
	DeferCleanup(allow)
	proxy.Reset(holdUntil(matches, sync.OnceFunc(func() { close(arrivedCh) }), released))
	return arrivedCh, allow
}

// podRequestStall holds up one process, the one that goes through the proxy.
type podRequestStall struct {
	once          sync.Once
	watchesBroken chan struct{} // closed when its watches of Pods are to end
	listsAllowed  chan struct{} // closed when it may look at Pods again
}

// stallPodRequests makes the proxy able to end the watches of Pods, and to keep from then on what lists them waiting.
func stallPodRequests() *podRequestStall {
	s := &podRequestStall{watchesBroken: make(chan struct{}), listsAllowed: make(chan struct{})}
	proxy.Reset(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		aboutPods := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods")
		if aboutPods && r.URL.Query().Get("watch") != "" {
			watching, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-s.watchesBroken:
					cancel()
				case <-watching.Done():
				}
			}()
			next.ServeHTTP(w, r.WithContext(watching))
			return
		}
		select {
		case <-s.watchesBroken:
			if aboutPods {
				<-s.listsAllowed
			}
		default:
		}
		next.ServeHTTP(w, r)
	})
	DeferCleanup(func() { s.once.Do(func() { close(s.listsAllowed) }) })
	return s
}

func (s *podRequestStall) breakWatches() { close(s.watchesBroken) }

func (s *podRequestStall) release() { s.once.Do(func() { close(s.listsAllowed) }) }

var _ = Describe("update_disk of a disk whose volume cannot be had", func() {
	It("says so, and makes no empty disk of it: a volume that is gone", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx, "one")
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		volume := env.getPVC(ctx, disk).Spec.VolumeName
		Expect(cluster.CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{})).To(Succeed())
		_, err := cluster.CoreV1().PersistentVolumes().Patch(ctx, volume, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() corev1.PersistentVolumeClaimPhase { return env.getPVC(ctx, disk).Status.Phase }).WithContext(ctx).Should(Equal(corev1.ClaimLost))
		previous := env.listDisks(ctx)
		Expect(env.mustFail(ctx, "update_disk", disk, 64, toXFS).Message).To(And(ContainSubstring("Lost"), ContainSubstring(volume), ContainSubstring("nothing was copied")))
		Expect(env.listDisks(ctx)).To(Equal(previous))
		Expect(env.getPVC(ctx, disk).Annotations).NotTo(HaveKey("bosh.cloudfoundry.org/copied-to"))
	})

	It("says so, and makes no empty disk of it: a volume that it waits for", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.createVM(ctx, "one")
		disk := env.createDisk(ctx)
		_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"volumeName":"restored-later"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustFail(ctx, "update_disk", disk, 64, toXFS).Message).To(And(ContainSubstring("Pending"), ContainSubstring("restored-later")))
		Expect(env.listDisks(ctx)).To(ConsistOf(disk))
	})
})

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
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	const call = "bosh.cloudfoundry.org/call"
	pod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		return orNil(cluster.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{}))
	}

	It("create_vm leaves the machine alone when it fails late", func(ctx context.Context) {
		held := map[string]any{"annotations": map[string]any{"test/hold": "yes"}}
		create := []any{"one", stemcellCID, held, onDynamic(), []string{}, map[string]any{}}
		late := begin(ctx, w.withTimeouts(map[string]any{"create_vm": "8s"}), "create_vm", create...)
		Eventually(pod).WithContext(ctx).WithArguments("agent-one").ShouldNot(BeNil())
		first := pod(ctx, "agent-one")
		again := begin(ctx, w.Director, "create_vm", create...)
		Eventually(func() string { return pod(ctx, "agent-one").Annotations[call] }).WithContext(ctx).ShouldNot(Equal(first.Annotations[call]))

		Expect((<-late).Error).NotTo(BeNil())
		Expect(pod(ctx, "agent-one")).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		Expect(w.annotate(ctx, "agent-one", "test/hold", nil)).To(Succeed())
		Expect((<-again).Error).To(BeNil())
		Expect(w.objects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
	})

	It("resize_disk notes no smaller size than another has noted meanwhile", func(ctx context.Context) {
		disk := w.usedDisk(ctx, w.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		var patches atomic.Int32
		grown, allow := held(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPatch && patches.Add(1) == 2 // the first asks for the room
		})
		late := begin(ctx, w.Director, "resize_disk", disk, 128)
		Eventually(grown).WithContext(ctx).Should(BeClosed())
		w.must(ctx, "resize_disk", disk, 256)
		allow()
		Expect((<-late).Error).To(HaveField("Type", "Bosh::Clouds::NotSupported"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "256"))
	})

	Describe("attach_disk of a disk that is being deleted", func() {
		var vm, disk string
		BeforeEach(func(ctx context.Context) { w, vm, disk = newWorldWithDisk(ctx) })
		attachment := func() string { return "Pod/" + disk + "-attachment" }

		It("has the delete_disk refused that had looked at the disk before", func(ctx context.Context) {
			looked, allow := held(func(_ int, r *http.Request) bool {
				annotateNewPod(r, map[string]string{"test/hold": "until the disk is to be deleted"})
				return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+disk)
			})
			deletion := begin(ctx, w.Director, "delete_disk", disk)
			Eventually(looked).WithContext(ctx).Should(BeClosed())
			attaching := begin(ctx, w.Director, "attach_disk", vm, disk)
			Eventually(func() map[string]string { return w.claim(ctx, disk).Labels }).WithContext(ctx).
				Should(HaveKeyWithValue("bosh.cloudfoundry.org/vm", vm), "before the attachment runs")
			allow()
			Expect((<-deletion).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+vm)))
			Expect(w.annotate(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
			Expect((<-attaching).Error).To(BeNil())
		})

		It("is told so at once, and leaves nothing, when the delete_disk came first", func(ctx context.Context) {
			comes, allow := held(func(_ int, r *http.Request) bool {
				return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
			})
			attaching := begin(ctx, w.Director, "attach_disk", vm, disk)
			Eventually(comes).WithContext(ctx).Should(BeClosed())
			w.directly(ctx, "delete_disk", disk)
			allow()
			Expect((<-attaching).Error).To(And(HaveField("Type", "Bosh::Clouds::DiskNotFound"), HaveField("Message", ContainSubstring("was deleted while"))))
			Eventually(w.objects).WithContext(ctx).ShouldNot(ContainElement(attachment()))
		})
	})

	Describe("update_disk", func() {
		var vm, disk string
		BeforeEach(func(ctx context.Context) {
			vm = w.createVM(ctx, "one")
			disk = w.usedDisk(ctx, vm, map[string]any{})
		})

		It("leaves the copy alone when its own time is over", func(ctx context.Context) {
			late := begin(ctx, w.withTimeouts(map[string]any{"update_disk": "8s"}), "update_disk", disk, 64, toXFS)
			w.copyRuns(ctx, disk)
			first := pod(ctx, disk+"-attachment")
			again := begin(ctx, w.Director, "update_disk", disk, 64, toXFS)
			Eventually(func() string { return pod(ctx, disk+"-attachment").Annotations[call] }).WithContext(ctx).
				ShouldNot(Equal(first.Annotations[call]))

			Expect((<-late).Error.Message).To(ContainSubstring("timeouts.update_disk"))
			Expect(pod(ctx, disk+"-attachment")).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
			w.endCopy(ctx, disk, "0")
			answered := <-again
			Expect(answered.Error).To(BeNil())
			Expect(w.disks(ctx)).To(ConsistOf(disk, answered.Text()))
		})

		It("keeps the disk that the other has answered, when it finds late that the copy is gone", func(ctx context.Context) {
			stalled := stallPods()
			late := begin(ctx, w.Director, "update_disk", disk, 64, toXFS)
			w.copyRuns(ctx, disk)
			stalled.cut()
			w.endCopy(ctx, disk, "0")
			answered := w.directly(ctx, "update_disk", disk, 64, toXFS)

			stalled.release()
			Expect((<-late).Error).NotTo(BeNil())
			proxy.Reset(nil)
			Expect(w.disks(ctx)).To(ConsistOf(disk, answered.Text()))
			w.must(ctx, "attach_disk", vm, answered.Text())
		})
	})
})

// begin makes the call beside the spec, and hands over its response.
func begin(ctx context.Context, by *director.Director, method string, arguments ...any) <-chan director.Response {
	ended := make(chan director.Response, 1)
	go func() {
		defer GinkgoRecover()
		response, err := by.Call(ctx, method, arguments...)
		Expect(err).NotTo(HaveOccurred())
		ended <- response
	}()
	return ended
}

// held makes the proxy keep the requests of a kind until allow is called. arrived is closed with the first.
func held(which func(i int, r *http.Request) bool) (arrived <-chan struct{}, allow func()) {
	came, allowed := make(chan struct{}), make(chan struct{})
	allow = sync.OnceFunc(func() { close(allowed) })
	DeferCleanup(allow)
	proxy.Reset(holding(which, sync.OnceFunc(func() { close(came) }), allowed))
	return came, allow
}

// stall holds up one process, the one that goes through the proxy.
type stall struct {
	once    sync.Once
	broken  chan struct{} // closed when its watches of Pods are to end
	allowed chan struct{} // closed when it may look at Pods again
}

// stallPods makes the proxy able to end the watches of Pods, and to keep from then on what lists them waiting.
func stallPods() *stall {
	s := &stall{broken: make(chan struct{}), allowed: make(chan struct{})}
	proxy.Reset(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		aboutPods := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods")
		if aboutPods && r.URL.Query().Get("watch") != "" {
			watching, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-s.broken:
					cancel()
				case <-watching.Done():
				}
			}()
			next.ServeHTTP(w, r.WithContext(watching))
			return
		}
		select {
		case <-s.broken:
			if aboutPods {
				<-s.allowed
			}
		default:
		}
		next.ServeHTTP(w, r)
	})
	DeferCleanup(func() { s.once.Do(func() { close(s.allowed) }) })
	return s
}

func (s *stall) cut() { close(s.broken) }

func (s *stall) release() { s.once.Do(func() { close(s.allowed) }) }

var _ = Describe("update_disk of a disk whose volume cannot be had", func() {
	It("says so, and makes no empty disk of it: a volume that is gone", func(ctx context.Context) {
		w := newWorld(ctx)
		vm := w.createVM(ctx, "one")
		disk := w.usedDisk(ctx, vm, map[string]any{})
		volume := w.claim(ctx, disk).Spec.VolumeName
		Expect(cluster.CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{})).To(Succeed())
		_, err := cluster.CoreV1().PersistentVolumes().Patch(ctx, volume, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() corev1.PersistentVolumeClaimPhase { return w.claim(ctx, disk).Status.Phase }).WithContext(ctx).Should(Equal(corev1.ClaimLost))
		before := w.disks(ctx)
		Expect(w.fails(ctx, "update_disk", disk, 64, toXFS).Message).To(And(ContainSubstring("Lost"), ContainSubstring(volume), ContainSubstring("nothing was copied")))
		Expect(w.disks(ctx)).To(Equal(before))
		Expect(w.claim(ctx, disk).Annotations).NotTo(HaveKey("bosh.cloudfoundry.org/copied-to"))
	})

	It("says so, and makes no empty disk of it: a volume that it waits for", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createVM(ctx, "one")
		disk := w.createDisk(ctx)
		_, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"volumeName":"restored-later"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.fails(ctx, "update_disk", disk, 64, toXFS).Message).To(And(ContainSubstring("Pending"), ContainSubstring("restored-later")))
		Expect(w.disks(ctx)).To(ConsistOf(disk))
	})
})

package integration

import (
	"context"
	"net/http"
	"strings"
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

// A CPI process can outlive the director's worker that started it, while another worker retries the call.
var _ = Describe("A delayed call", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	getPod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		return nilIfNotFound(cluster.CoreV1().Pods(env.namespace).Get(ctx, name, metav1.GetOptions{}))
	}

	It("does not delete the VM of a retried create_vm when it fails", long, func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/hold": "yes"}}
		arguments := []any{"one", stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{}}
		late := startCall(ctx, env.directorWithTimeouts(map[string]any{"create_vm": "20s"}), "create_vm", arguments...)
		Eventually(getPod).WithContext(ctx).WithArguments("agent-one").ShouldNot(BeNil())
		first := getPod(ctx, "agent-one")
		retried := startCall(ctx, env.Director, "create_vm", arguments...)
		Eventually(func() string { return getPod(ctx, "agent-one").Annotations[callAnnotation] }).WithContext(ctx).ShouldNot(Equal(first.Annotations[callAnnotation]))

		Expect((<-late).Error).NotTo(BeNil())
		Expect(getPod(ctx, "agent-one")).To(And(HaveField("UID", first.UID), HaveField("DeletionTimestamp", BeNil())))
		Expect(env.annotatePod(ctx, "agent-one", "test/hold", nil)).To(Succeed())
		Expect((<-retried).Error).To(BeNil())
		Expect(env.listObjects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
	})

	It("does not record a smaller size than a later resize_disk", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		var patches atomic.Int32
		patchArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPatch && patches.Add(1) == 2 // the first patch requests the storage, the second one records the size
		})
		late := startCall(ctx, env.Director, "resize_disk", disk, 128)
		Eventually(patchArrived).WithContext(ctx).Should(BeClosed())
		env.mustCall(ctx, "resize_disk", disk, 256)
		allow()
		Expect((<-late).Error).To(HaveField("Type", "Bosh::Clouds::NotSupported"))
		Expect(env.getPVC(ctx, disk).Annotations).To(HaveKeyWithValue(sizeAnnotation, "256"))
	})

	Describe("of attach_disk or delete_disk", func() {
		var vm, disk string
		BeforeEach(func(ctx context.Context) { env, vm, disk = newTestEnvWithDisk(ctx) })
		attachment := func() string { return "Pod/" + disk + "-attachment" }

		It("does not delete the disk if attach_disk recorded its owner meanwhile", func(ctx context.Context) {
			deleteArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
				annotateNewPod(r, map[string]string{"test/hold": "until the test removes this annotation"})
				return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+disk)
			})
			deletion := startCall(ctx, env.Director, "delete_disk", disk)
			Eventually(deleteArrived).WithContext(ctx).Should(BeClosed())
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(func() map[string]string { return env.getPVC(ctx, disk).Labels }).WithContext(ctx).
				Should(HaveKeyWithValue("bosh.cloudfoundry.org/vm", vm), "the owner is recorded before the attachment Pod runs")
			allow()
			Expect((<-deletion).Error).To(HaveField("Message", ContainSubstring("is attached to VM "+vm)))
			Expect(env.annotatePod(ctx, disk+"-attachment", "test/hold", nil)).To(Succeed())
			Expect((<-attaching).Error).To(BeNil())
		})

		It("releases the disk if the VM is deleted meanwhile, even if the attachment Pod becomes ready", func(ctx context.Context) {
			var deletions atomic.Int32
			rollbackArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
				annotateNewPod(r, map[string]string{"test/hold": "yes", "test/stays": "yes"})
				isAttachment := strings.HasSuffix(r.URL.Path, "/"+disk+"-attachment")
				if isAttachment && r.Method == http.MethodDelete {
					deletions.Add(1)
				}
				return isAttachment && r.Method == http.MethodGet
			})
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(func() *corev1.Pod { return getPod(ctx, disk+"-attachment") }).WithContext(ctx).Should(HaveField("Spec.NodeName", Not(BeEmpty())))
			Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, vm, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})).To(Succeed())
			Eventually(rollbackArrived).WithContext(ctx).Should(BeClosed(), "the garbage collector deletes the attachment Pod")
			_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, disk+"-attachment", types.StrategicMergePatchType,
				[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
			Expect(err).NotTo(HaveOccurred())
			allow()
			Eventually(func() bool { return deletions.Load() > 0 || len(attaching) > 0 }).WithContext(ctx).Should(BeTrue())
			Expect(env.annotatePod(ctx, disk+"-attachment", "test/stays", nil)).To(Succeed())
			Expect((<-attaching).Error).NotTo(BeNil())
			Expect(env.getPVC(ctx, disk).Labels).NotTo(HaveKey(manifest.LabelVM))
		})

		It("fails at once and leaves no objects if delete_disk deleted the disk meanwhile", func(ctx context.Context) {
			createArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
				return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
			})
			attaching := startCall(ctx, env.Director, "attach_disk", vm, disk)
			Eventually(createArrived).WithContext(ctx).Should(BeClosed())
			env.mustCallAsAdmin(ctx, "delete_disk", disk)
			allow()
			Expect((<-attaching).Error).To(And(HaveField("Type", "Bosh::Clouds::DiskNotFound"), HaveField("Message", ContainSubstring("the disk was deleted by a concurrent call"))))
			Eventually(env.listObjects).WithContext(ctx).ShouldNot(ContainElement(attachment()))
		})
	})

})

// startCall makes the call in the background, and sends the response to the returned channel.
func startCall(ctx context.Context, d *director.Director, method string, arguments ...any) <-chan director.Response {
	responses := make(chan director.Response, 1)
	go func() {
		defer GinkgoRecover()
		defer close(responses) // also after a failure
		response, err := d.Call(ctx, method, arguments...)
		Expect(err).NotTo(HaveOccurred())
		responses <- response
	}()
	return responses
}

// holdRequests makes the proxy hold matching requests until allow is called. The first matching request closes arrived.
func holdRequests(matches func(i int, r *http.Request) bool) (arrived <-chan struct{}, allow func()) {
	gate := apiproxy.NewGate()
	DeferCleanup(gate.Open)
	proxy.Reset(gate.Hold(apiproxy.HeldBefore, matches))
	return gate.Reached, gate.Open
}

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/apiproxy"
)

// interruptCall makes the call with a process that is killed once the API server has seen its nth request: one that is killed before the next
// leaves the same. It returns false when the call sent fewer requests.
func (env testEnv) interruptCall(ctx context.Context, n int, method string, arguments ...any) bool {
	GinkgoHelper()
	killable, sendSignal := env.Killable()
	proxy.Reset(apiproxy.AfterRequest(n, func() { Expect(sendSignal(os.Kill)).To(Succeed()) }))
	_, err := killable.Call(ctx, method, arguments...)
	proxy.Reset(nil)
	return err != nil
}

// forEachRequest tries a call that is killed at its first request, at its second, and so on, until the call
// ends before that. It has to have sent as many requests as least, so that some were killed.
func forEachRequest(minRequests int, try func(n int) (interrupted bool)) {
	GinkgoHelper()
	n := 1
	for try(n) {
		n++
	}
	Expect(n).To(BeNumerically(">", minRequests), "requests")
}

// mustRetry makes a call whose first try was cut short: it succeeds, or its error says that all is done.
func (env testEnv) mustRetry(ctx context.Context, doneError, method string, arguments ...any) {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	if response.Error != nil {
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::"+doneError), "%s %v: %s", method, arguments, response.Error.Message)
	}
}

// What the matrix of faults does not ask for.
var _ = Describe("A call that is killed after any of its requests", func() {
	for name, strategy := range diskStrategies {
		It("does not keep a disk that was being detached from being attached again to a VM"+name, func(ctx context.Context) {
			env := newTestEnv(ctx).withDiskStrategy(strategy)
			vm, disk := env.createVM(ctx, "one"), env.createDisk(ctx)
			forEachRequest(1, func(n int) bool {
				env.mustCall(ctx, "attach_disk", vm, disk)
				interrupted := env.interruptCall(ctx, n, "detach_disk", vm, disk)
				env.mustCall(ctx, "attach_disk", vm, disk)
				Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
				return interrupted
			})
		})

		It("leaves no settings behind that the VM that is made instead does not own, a VM"+name, func(ctx context.Context) {
			env := newTestEnv(ctx).withDiskStrategy(strategy)
			forEachRequest(1, func(n int) bool {
				agent := fmt.Sprintf("killed-%d", n)
				interrupted := env.interruptCall(ctx, n, "create_vm", agent, stemcellCID, strategy.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
				env.createVM(ctx, agent)
				secret, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", manifest.OwnerReference(pod).UID)))
				return interrupted
			})
		})
	}

	It("has the disk grow when it is repeated", func(ctx context.Context) {
		env, vm := newTestEnvWithVM(ctx)
		disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		forEachRequest(3, func(n int) bool {
			size := 64 + 32*n
			interrupted := env.interruptCall(ctx, n, "resize_disk", disk, size)
			env.mustCall(ctx, "resize_disk", disk, size)
			pvc := env.getPVC(ctx, disk)
			Expect(pvc.Annotations).To(HaveKeyWithValue(sizeAnnotation, fmt.Sprint(size)))
			Expect(pvc.Status.Capacity.Storage().Value()).To(BeNumerically(">=", size<<20))
			return interrupted
		})
	})
})

var _ = Describe("A fault of the API server", func() {
	It("that is a proxy's own answer does not mean that a VM or disk is gone", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
			proxy.Reset(apiproxy.ProxyError(code))
			for method, arguments := range map[string][]any{
				"has_vm": {vm}, "has_disk": {disk}, "delete_vm": {vm}, "delete_disk": {disk}, "attach_disk": {vm, disk},
			} {
				Expect(env.mustFail(ctx, method, arguments...).Type).To(Equal("Bosh::Clouds::CloudError"), "%s met by a %d", method, code)
			}
			proxy.Reset(nil)
		}
		Expect(env.mustCall(ctx, "has_vm", vm).Result).To(MatchJSON("true"))
		Expect(env.mustCall(ctx, "has_disk", disk).Result).To(MatchJSON("true"))
	})

	DescribeTable("that loses one request makes no second disk:", func(ctx context.Context, fault func(n int) apiproxy.Fault) {
		env := newTestEnv(ctx)
		proxy.Reset(fault(1))
		env.createDisk(ctx)
		Expect(env.listDisks(ctx)).To(HaveLen(1))
	},
		Entry("a 503", apiproxy.Unavailable),
		Entry("a connection that breaks before", apiproxy.ResetBefore),
		Entry("an answer that is lost on the way back", apiproxy.ResetAfter),
		Entry("an answer that breaks off", apiproxy.TruncatedBody),
	)
})

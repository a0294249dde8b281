package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// interruptCall makes the call, and kills its process after the API server handled the nth request. Killing it before request n+1 leaves
// the same state. It returns false if the call sent fewer requests.
func (env testEnv) interruptCall(ctx context.Context, n int, method string, arguments ...any) bool {
	GinkgoHelper()
	kill := func(sendSignal func(os.Signal)) apiproxy.Fault {
		return apiproxy.AfterRequest(n, func() { sendSignal(os.Kill) })
	}
	_, _, err := callWithFault(ctx, env.Director, &proxy.FaultHandler, kill, append([]any{method}, arguments...))
	return err != nil
}

// killedCallParts is the number of runs without CASES that together kill a call after each of its requests.
const killedCallParts = 3

// forEachRequest tries a call that is killed after its first request, after its second, and so on, until the call returns before that. It
// expects that the call sends at least minRequests requests. Without CASES, it tries some of them; see killedCallParts.
func forEachRequest(minRequests int, try func(n int) (interrupted bool)) {
	GinkgoHelper()
	name, all := CurrentSpecReport().FullText(), chaos.Pattern != ""
	if all && !chaos.IsSelected(name, 1) {
		Skip("CASES selects other test cases")
	}
	const maxRequests = 100
	for n := 1; n < maxRequests; n++ {
		selected := all || n == minRequests || chaos.IsSelected(fmt.Sprintf("%s %d", name, n), killedCallParts)
		if selected && !try(n) {
			Expect(n).To(BeNumerically(">", minRequests), "requests")
			return
		}
	}
	Fail("the call never returns before it is killed")
}

// mustRetry retries an interrupted call. The call must succeed, or fail with the error that there is nothing to do.
func (env testEnv) mustRetry(ctx context.Context, doneError, method string, arguments ...any) {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	if response.Error != nil {
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::"+doneError), "%s %v: %s", method, arguments, response.Error.Message)
	}
}

// These checks are not part of the fault matrix.
var _ = Describe("A call that is killed after any of its requests", Label("faults"), func() {
	for name, strategy := range diskStrategies {
		It("lets a disk of an interrupted detach_disk be attached again to a VM"+name, func(ctx context.Context) {
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

		It("leaves no agent settings without an owner after a retried create_vm of a VM"+name, func(ctx context.Context) {
			env := newTestEnv(ctx).withDiskStrategy(strategy)
			forEachRequest(1, func(n int) bool {
				agent := fmt.Sprintf("killed-%d", n)
				interrupted := env.interruptCall(ctx, n, "create_vm", agent, stemcellCID, strategy.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
				env.createVM(ctx, agent)
				secret, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", manifest.VMPod{Pod: pod}.OwnerReference().UID)))
				return interrupted
			})
		})
	}

	It("expands the disk when it is retried, if it is a resize_disk", func(ctx context.Context) {
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

var _ = Describe("A failed request", func() {
	It("with an error page of a proxy does not mean that the VM or disk was deleted", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
			proxy.Reset(apiproxy.ProxyError(code))
			for method, arguments := range map[string][]any{
				"has_vm": {vm}, "has_disk": {disk}, "delete_vm": {vm}, "delete_disk": {disk}, "attach_disk": {vm, disk},
			} {
				Expect(env.mustFail(ctx, method, arguments...).Type).To(Equal("Bosh::Clouds::CloudError"), "%s with a %d from a proxy", method, code)
			}
			proxy.Reset(nil)
		}
		Expect(env.mustCall(ctx, "has_vm", vm).Result).To(MatchJSON("true"))
		Expect(env.mustCall(ctx, "has_disk", disk).Result).To(MatchJSON("true"))
	})

	DescribeTable("does not lead to a second disk:", func(ctx context.Context, fault func(n int) apiproxy.Fault) {
		env := newTestEnv(ctx)
		proxy.Reset(fault(1))
		env.createDisk(ctx)
		Expect(env.listDisks(ctx)).To(HaveLen(1))
	},
		Entry("a 503", apiproxy.Unavailable),
		Entry("a connection that breaks before the request", apiproxy.ResetBefore),
		Entry("a lost response", apiproxy.ResetAfter),
		Entry("a truncated response", apiproxy.TruncatedBody),
	)
})

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

// killed makes the call with a process that is killed once the API server has seen its nth request: one that is killed before the next
// leaves the same. It returns false when the call sent fewer requests.
func (w world) killed(ctx context.Context, n int, method string, arguments ...any) bool {
	GinkgoHelper()
	killing, end := w.Mortal()
	proxy.Reset(apiproxy.After(n, func() { Expect(end(os.Kill)).To(Succeed()) }))
	_, err := killing.Call(ctx, method, arguments...)
	proxy.Reset(nil)
	return err != nil
}

// eachRequest tries a call that is killed at its first request, at its second, and so on, until the call
// ends before that. It has to have sent as many requests as least, so that some were killed.
func eachRequest(least int, try func(n int) (killed bool)) {
	GinkgoHelper()
	n := 1
	for try(n) {
		n++
	}
	Expect(n).To(BeNumerically(">", least), "requests")
}

// repeats makes a call whose first try was cut short: it succeeds, or its error says that all is done.
func (w world) repeats(ctx context.Context, done, method string, arguments ...any) {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	if response.Error != nil {
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::"+done), "%s %v: %s", method, arguments, response.Error.Message)
	}
}

// What the matrix of faults does not ask for.
var _ = Describe("A call that is killed after any of its requests", func() {
	for name, kind := range kinds {
		It("does not keep a disk that was being detached from being attached again to a VM"+name, func(ctx context.Context) {
			w := newWorld(ctx).of(kind)
			vm, disk := w.createVM(ctx, "one"), w.createDisk(ctx)
			eachRequest(1, func(n int) bool {
				w.must(ctx, "attach_disk", vm, disk)
				cut := w.killed(ctx, n, "detach_disk", vm, disk)
				w.must(ctx, "attach_disk", vm, disk)
				Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
				return cut
			})
		})

		It("leaves no settings behind that the VM that is made instead does not own, a VM"+name, func(ctx context.Context) {
			w := newWorld(ctx).of(kind)
			eachRequest(1, func(n int) bool {
				agent := fmt.Sprintf("killed-%d", n)
				cut := w.killed(ctx, n, "create_vm", agent, stemcellCID, kind.vm, onDynamic(), []string{}, map[string]any{})
				w.createVM(ctx, agent)
				secret, err := cluster.CoreV1().Secrets(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", manifest.OwnerReference(pod).UID)))
				return cut
			})
		})
	}

	It("has the disk grow when it is repeated", func(ctx context.Context) {
		w, vm := newWorldWithVM(ctx)
		grows := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		eachRequest(3, func(n int) bool {
			size := 64 + 32*n
			cut := w.killed(ctx, n, "resize_disk", grows, size)
			w.must(ctx, "resize_disk", grows, size)
			claim := w.claim(ctx, grows)
			Expect(claim.Annotations).To(HaveKeyWithValue(sizeOf, fmt.Sprint(size)))
			Expect(claim.Status.Capacity.Storage().Value()).To(BeNumerically(">=", size<<20))
			return cut
		})
	})
})

var _ = Describe("A fault of the API server", func() {
	It("that is a proxy's own answer does not mean that a VM or disk is gone", func(ctx context.Context) {
		w, vm, disk := newWorldWithDisk(ctx)
		for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
			proxy.Reset(apiproxy.Foreign(code))
			for method, arguments := range map[string][]any{
				"has_vm": {vm}, "has_disk": {disk}, "delete_vm": {vm}, "delete_disk": {disk}, "attach_disk": {vm, disk},
			} {
				Expect(w.fails(ctx, method, arguments...).Type).To(Equal("Bosh::Clouds::CloudError"), "%s met by a %d", method, code)
			}
			proxy.Reset(nil)
		}
		Expect(w.must(ctx, "has_vm", vm).Result).To(MatchJSON("true"))
		Expect(w.must(ctx, "has_disk", disk).Result).To(MatchJSON("true"))
	})

	DescribeTable("that loses one request makes no second disk:", func(ctx context.Context, fault func(n int) apiproxy.Fault) {
		w := newWorld(ctx)
		proxy.Reset(fault(1))
		w.createDisk(ctx)
		Expect(w.disks(ctx)).To(HaveLen(1))
	},
		Entry("a 503", apiproxy.Unavailable),
		Entry("a connection that breaks before", apiproxy.ResetBefore),
		Entry("an answer that is lost on the way back", apiproxy.ResetAfter),
		Entry("an answer that breaks off", apiproxy.CutShort),
	)
})

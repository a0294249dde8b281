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

// killed makes the call with a process that is killed when it sends its nth request: before the API
// server has seen it, or after. It returns false when the call sent fewer requests.
func (w world) killed(ctx context.Context, n int, after bool, method string, arguments ...any) bool {
	GinkgoHelper()
	killing, end := w.Mortal()
	kill := func() { Expect(end(os.Kill)).To(Succeed()) }
	if after {
		proxy.Reset(apiproxy.After(n, kill))
	} else {
		proxy.Reset(apiproxy.Before(n, func() bool { kill(); return false }))
	}
	_, err := killing.Call(ctx, method, arguments...)
	proxy.Reset(nil)
	return err != nil
}

// moments are when a process is killed, beside a request: before the API server has seen it, or after.
var moments = map[string]bool{"before": false, "after": true}

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
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::" + done))
	}
}

// faults are what can happen to the nth request of a call that goes on.
var faults = map[string]func(n int) apiproxy.Fault{
	"a 503":                                  apiproxy.Unavailable,
	"a connection that breaks before":        apiproxy.ResetBefore,
	"an answer that is lost on the way back": apiproxy.ResetAfter,
	"an answer that breaks off":              apiproxy.CutShort,
}

var _ = Describe("A call that is cut short", func() {
	for name, kind := range kinds {
		Describe("for a disk of a VM"+name, func() { cutShortForDisks(kind) })
		Describe("for a VM"+name, func() { cutShortForVMs(kind) })
	}
})

func cutShortForDisks(kind kind) {
	var (
		w        world
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx).of(kind)
		vm, disk = w.createVM(ctx, "one"), w.createDisk(ctx)
	})

	for when, after := range moments {
		It("attach_disk, killed "+when+" any request, ends well when it is repeated", func(ctx context.Context) {
			eachRequest(3, func(n int) bool {
				cut := w.killed(ctx, n, after, "attach_disk", vm, disk)
				Expect(w.must(ctx, "attach_disk", vm, disk).Result).To(MatchJSON(`{"path":"/dev/bosh/` + disk + `"}`))
				w.must(ctx, "detach_disk", vm, disk)
				return cut
			})
		})

		It("detach_disk, killed "+when+" any request, ends well when it is repeated", func(ctx context.Context) {
			eachRequest(3, func(n int) bool {
				w.must(ctx, "attach_disk", vm, disk)
				cut := w.killed(ctx, n, after, "detach_disk", vm, disk)
				w.repeats(ctx, "DiskNotAttached", "detach_disk", vm, disk)
				Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
				return cut
			})
		})

		It("detach_disk, killed "+when+" any request, does not keep the disk from being attached again", func(ctx context.Context) {
			eachRequest(1, func(n int) bool {
				w.must(ctx, "attach_disk", vm, disk)
				cut := w.killed(ctx, n, after, "detach_disk", vm, disk)
				w.must(ctx, "attach_disk", vm, disk)
				Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
				return cut
			})
		})

		It("resize_disk, killed "+when+" any request, ends well when it is repeated", func(ctx context.Context) {
			grows := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			eachRequest(3, func(n int) bool {
				size := 64 + 32*n
				cut := w.killed(ctx, n, after, "resize_disk", grows, size)
				w.must(ctx, "resize_disk", grows, size)
				claim := w.claim(ctx, grows)
				Expect(claim.Annotations).To(HaveKeyWithValue(sizeOf, fmt.Sprint(size)))
				Expect(claim.Status.Capacity.Storage().Value()).To(BeNumerically(">=", size<<20))
				return cut
			})
		})
	}
}

func cutShortForVMs(kind kind) {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx).of(kind) })

	for when, after := range moments {
		It("create_vm, killed "+when+" any request, ends well when it is repeated", func(ctx context.Context) {
			eachRequest(1, func(n int) bool {
				agent := fmt.Sprintf("killed-%d", n)
				cut := w.killed(ctx, n, after, "create_vm", agent, stemcellCID, kind.vm, onDynamic(), []string{}, map[string]any{})
				w.createVM(ctx, agent)
				secret, err := cluster.CoreV1().Secrets(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", manifest.Owner(pod).UID)))
				return cut
			})
		})

		It("delete_vm, killed "+when+" any request, ends well when it is repeated, and leaves the disk", func(ctx context.Context) {
			disk := w.createDisk(ctx)
			eachRequest(1, func(n int) bool {
				machine := w.createVM(ctx, fmt.Sprintf("doomed-%d", n), disk)
				w.must(ctx, "attach_disk", machine, disk)
				cut := w.killed(ctx, n, after, "delete_vm", machine)
				w.repeats(ctx, "VMNotFound", "delete_vm", machine)
				Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("true"))
				return cut
			})
		})
	}
}

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

	for name, fault := range faults {
		for of, kind := range kinds {
			It(name+", at any request for a VM"+of+", does not make a call fail or change its outcome", func(ctx context.Context) {
				w := newWorld(ctx).of(kind)
				at := func(n int, method string, arguments ...any) {
					GinkgoHelper()
					proxy.Reset(fault(n))
					w.must(ctx, method, arguments...)
					proxy.Reset(nil)
				}
				for n := 1; n <= 6; n++ {
					agent := fmt.Sprintf("vm-%d", n)
					at(n, "create_vm", agent, stemcellCID, w.vm, onDynamic(), []string{}, map[string]any{})
					disk := w.createDisk(ctx)
					at(n, "attach_disk", "agent-"+agent, disk)
					Expect(w.must(ctx, "get_disks", "agent-"+agent).Result).To(MatchJSON(`["` + disk + `"]`))
					at(n, "detach_disk", "agent-"+agent, disk)
					Expect(w.must(ctx, "get_disks", "agent-"+agent).Result).To(MatchJSON(`[]`))
					at(n, "delete_vm", "agent-"+agent)
					at(n, "delete_disk", disk)
				}
				proxy.Reset(fault(1))
				w.createDisk(ctx)
				claims, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleDisk})
				Expect(err).NotTo(HaveOccurred())
				Expect(claims.Items).To(HaveLen(1), "a repeated create_disk made two claims")
			})
		}
	}
})

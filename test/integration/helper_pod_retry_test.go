package integration

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The Pods that run once on a machine's node, as for reboot_vm, are not run again by a kubelet.
var _ = Describe("A Pod that runs once, and whose container could not be started", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
	})
	// unstarted has the first so many Pods that are made from now on not start.
	failPodStarts := func(count int) {
		created := 0
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") {
				if created++; created <= count {
					annotateNewPod(r, map[string]string{"test/cut": "128"})
				}
			}
			next.ServeHTTP(rw, r)
		})
		DeferCleanup(func() { proxy.Reset(nil) })
	}

	DescribeTable("is made anew by the call that waits for it", func(ctx context.Context, method string) {
		failPodStarts(2)
		arguments := map[string][]any{"reboot_vm": {vm}, "snapshot_disk": {disk, map[string]any{}}}
		env.mustCall(ctx, method, arguments[method]...)
	},
		Entry(nil, "reboot_vm"),
		Entry(nil, "snapshot_disk"),
	)

	It("is not made for ever, and the error has the node's words", func(ctx context.Context) {
		failPodStarts(100)
		Expect(env.mustFail(ctx, "reboot_vm", vm).Message).To(Equal("the machine was not restarted: failed to create containerd task"))
		Expect(env.listObjects(ctx)).NotTo(ContainElement(ContainSubstring("-reboot")))
	})
})

package integration

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// A kubelet does not restart the container of a helper Pod, for example a reboot Pod.
var _ = Describe("A helper Pod with a container that cannot be started", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		env.waitBound(ctx, disk)
		Expect(env.annotatePod(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
	})
	// failPodStarts makes the containers of the next count Pods fail to start.
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

	DescribeTable("is recreated by the call that waits for it:", func(ctx context.Context, method string) {
		failPodStarts(2)
		arguments := map[string][]any{"reboot_vm": {vm}, "snapshot_disk": {disk, map[string]any{}}}
		env.mustCall(ctx, method, arguments[method]...)
	},
		Entry("reboot_vm", "reboot_vm"),
		Entry("snapshot_disk", "snapshot_disk"),
	)

	It("is recreated a limited number of times, and the error quotes the node's message", func(ctx context.Context) {
		failPodStarts(100)
		Expect(env.mustFail(ctx, "reboot_vm", vm).Message).To(Equal("cannot reboot VM " + vm + ": failed to create containerd task [vm-reboot-failed]"))
		Expect(env.listObjects(ctx)).NotTo(ContainElement(ContainSubstring("-reboot")))
	})
})

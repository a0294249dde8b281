package integration

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("An exclusivity check that was interrupted by a restart of the kubelet", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/unstarted", new("exclusivity-check-1"))).To(Succeed())
	})

	It("is retried by the detach_disk that waits for it", func(ctx context.Context) {
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("is not retried after another detach_disk detached the disk", func(ctx context.Context) {
		watches, allow := holdRequests(func(_ int, r *http.Request) bool { return r.URL.Query().Get("watch") != "" })
		detach := startCall(ctx, env.Director, "detach_disk", vm, disk)
		Eventually(watches).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "detach_disk", vm, disk)
		allow()
		Expect((<-detach).Error).To(BeNil())
		Expect(proxy.Requests()).NotTo(ContainElement(HavePrefix("POST namespaces/"+env.namespace+"/pods")), "no new attachment Pod")
	})

	It("does not block an attach_disk or the next detach_disk", func(ctx context.Context) {
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"detach_disk": waitTimeout})
		var checks atomic.Int32
		_, allow := holdRequests(func(_ int, r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/ephemeralcontainers") && checks.Add(1) == 2
		})
		shortTimeout.mustFail(ctx, "detach_disk", vm, disk) // times out before it starts another check
		allow()
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})
})

var _ = Describe("An exclusivity check without a result", func() {
	DescribeTable("is retried", func(ctx context.Context, exitCode int) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new(strconv.Itoa(exitCode)))).To(Succeed())
		proxy.Reset(nil)
		env.mustCall(ctx, "detach_disk", vm, disk)
		checks := slices.DeleteFunc(proxy.Requests(), func(request string) bool { return !strings.HasSuffix(request, "/ephemeralcontainers") })
		Expect(checks).To(HaveLen(2))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	},
		Entry("if its container cannot start, for example because the kubelet stops", 128),
		Entry("if it is killed", 137),
		Entry("if the node does not know its exit status", 255),
		Entry("if there is no device node yet, for example right after a reboot", api.ExitNotPublished),
	)

	// Such an attachment never published the disk: the disk is free after the attachment Pod exits.
	It("is not retried for an attachment that fails before the VM can use the disk", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new(strconv.Itoa(api.ExitNotPublished)))).To(Succeed())
		env.setCrashLoopBackOff(ctx, disk+"-attachment", 1)
		proxy.Reset(nil)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(proxy.Requests()).NotTo(ContainElement(HavePrefix("POST namespaces/"+env.namespace+"/pods")), "no new attachment Pod")
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("is repeated with a new attachment Pod for an attachment that fails after an earlier one published the disk", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		env.deletePodAndWait(ctx, disk+"-attachment")
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new(strconv.Itoa(api.ExitNotPublished)))).To(Succeed())
		env.setCrashLoopBackOff(ctx, disk+"-attachment", 1)
		proxy.Reset(nil)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(proxy.Requests()).To(ContainElement(HavePrefix("POST namespaces/" + env.namespace + "/pods")))
	})

	It("does not free a disk that the retried check finds in use", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new("137"))).To(Succeed())
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres) has it mounted"))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
	})
})

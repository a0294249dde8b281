package integration

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest"
)

var _ = Describe("A proof that a restart of the kubelet lost", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/unstarted", new("release-1"))).To(Succeed())
	})

	It("is brought again by the detach_disk that waits for it", func(ctx context.Context) {
		env.Director = env.directorWithTimeouts(map[string]any{"detach_disk": "30s"})
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("is not brought again once another detach_disk has proven the disk free", func(ctx context.Context) {
		watches, allow := holdRequests(func(_ int, r *http.Request) bool { return r.URL.Query().Get("watch") != "" })
		detach := startCall(ctx, env.Director, "detach_disk", vm, disk)
		Eventually(watches).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "detach_disk", vm, disk)
		allow()
		Expect((<-detach).Error).To(BeNil())
		Expect(proxy.Requests()).NotTo(ContainElement(HavePrefix("POST namespaces/"+env.namespace+"/pods")), "a new attachment")
	})

	It("does not keep an attach_disk waiting, nor the next detach_disk", func(ctx context.Context) {
		env.Director = env.directorWithTimeouts(map[string]any{"detach_disk": "2s", "attach_disk": "30s"})
		env.mustFail(ctx, "detach_disk", vm, disk) // ended before it brought another
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})
})

var _ = Describe("A proof that did not end by itself", func() {
	DescribeTable("says nothing, and another is made", func(ctx context.Context, exitCode int) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new(strconv.Itoa(exitCode)))).To(Succeed())
		proxy.Reset(nil)
		env.mustCall(ctx, "detach_disk", vm, disk)
		checks := slices.DeleteFunc(proxy.Requests(), func(request string) bool { return !strings.HasSuffix(request, "/ephemeralcontainers") })
		Expect(checks).To(HaveLen(2))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	},
		Entry("when its container cannot be made, as while the kubelet ends", 128),
		Entry("when it is killed", 137),
		Entry("when the node does not know how it ended", 255),
		Entry("when there is no node yet, as right after the node's boot", manifest.ExitNotPublished),
	)

	It("is not made again for an attachment that fails before its VM sees the disk: that is free once the attachment has ended", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new(strconv.Itoa(manifest.ExitNotPublished)))).To(Succeed())
		env.setCrashLoopBackOff(ctx, disk+"-attachment", 1)
		proxy.Reset(nil)
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(proxy.Requests()).NotTo(ContainElement(HavePrefix("POST namespaces/"+env.namespace+"/pods")), "a new attachment")
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("does not free a disk that is in use, which the other finds", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/cut", new("137"))).To(Succeed())
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres) has it mounted"))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
	})
})

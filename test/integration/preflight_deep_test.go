package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/director"
)

// healthyNodeFacts is the probe output of a node that meets all requirements.
const healthyNodeFacts = "kernel 6.1\ncgroup v2\noom-group 1\nloop yes\noverlay yes\next4 yes\nxfs yes\ndummy yes\nbridge yes\n" +
	"open-files yes\ndns yes\napi yes\nhairpin yes\nuser-namespaces yes\napparmor yes\nxfs-quotas yes\ncgroup-controllers yes\n" +
	"ip-forwarding yes\nnat yes\n"

var _ = Describe("The deep check", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	// directorWithFacts returns a director with probes that report these facts.
	directorWithFacts := func(facts string) *director.Director {
		return env.directorWithConfig("pods", map[string]any{"annotations": map[string]string{"test/facts": facts}})
	}

	// It is serial because the check runs Pods on all nodes, including full nodes of other specs.
	It("passes on nodes that meet all requirements, and leaves no objects", Serial, func(ctx context.Context) {
		report := runCheck(ctx, directorWithFacts(healthyNodeFacts), "-deep")
		for _, check := range preflight.DeepChecks() {
			Expect(report.results[check.Name].Verdict).To(Equal(preflight.OK), "%v", report.results[check.Name])
		}
		Expect(report.status).To(BeZero())
		Expect(report.results["run-vm"].Detail).To(And(ContainSubstring("node-a"), ContainSubstring("node-b")))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("runs Pods only on nodes that the limits of the admission policy admit", func(ctx context.Context) {
		env.changeAdmissionLimits(ctx, map[string]string{"nodes": "node-b"})
		env.waitForRule(ctx, "nodes")
		report := runCheck(ctx, directorWithFacts(healthyNodeFacts), "-deep")
		Expect(report.results["run-vm"]).To(And(HaveField("Verdict", preflight.OK), HaveField("Detail", HavePrefix("a Pod like a VM Pod ran on node-b, in"))))
	})

	It("quotes the kubelet's message if its Pod cannot start, and leaves no objects", func(ctx context.Context) {
		d := env.directorWithConfig("pods", map[string]any{"annotations": map[string]string{
			"test/waiting": "ErrImagePull", "test/message": `failed to pull image "registry.example.com/stemcell": not found`}})
		report := runCheck(ctx, d, "-deep")
		Expect(report.results["run-vm"]).To(matchResult(preflight.Fails, "not found", "docs/reference/compatibility.md"))
		Expect(report.results["loop-devices"].Verdict).To(Equal(preflight.Unknown))
		Expect(report.status).To(Equal(1))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})
})

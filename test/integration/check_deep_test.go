package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/director"
)

// wellNode is what a probe tells of a node that has all.
const wellNode = "kernel 6.1\ncgroup v2\noom-group 1\nloop yes\noverlay yes\next4 yes\nxfs yes\ndummy yes\nbridge yes\n" +
	"open-files yes\ndns yes\napi yes\nhairpin yes\n"

var _ = Describe("A deep check of the cluster", func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	// where is a director whose probes tell these facts.
	where := func(facts string) *director.Director {
		GinkgoHelper()
		return w.with("pods", map[string]any{"annotations": map[string]string{"test/facts": facts}})
	}

	It("holds where a Pod like a machine finds all that it needs, in less than a minute, and leaves nothing", func(ctx context.Context) {
		started := time.Now()
		said := checked(ctx, where(wellNode), "-deep")
		Expect(time.Since(started)).To(BeNumerically("<", time.Minute))
		Expect(said.status).To(BeZero())
		for _, check := range preflight.DeepChecks() {
			Expect(said.results[check.Name].Verdict).To(Equal(preflight.OK), "%v", said.results[check.Name])
		}
		Expect(said.results["run-machine"].Detail).To(And(ContainSubstring("node-a"), ContainSubstring("node-b")))
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
	})

	It("says in the cluster's own words why no such Pod runs, and leaves nothing", func(ctx context.Context) {
		d := w.with("pods", map[string]any{"annotations": map[string]string{
			"test/waiting": "ErrImagePull", "test/message": `failed to pull image "registry.example.com/stemcell": not found`}})
		said := checked(ctx, d, "-deep")
		Expect(said.results["run-machine"]).To(are(preflight.Fails, "not found", "docs/machines.md"))
		Expect(said.results["loop-devices"].Verdict).To(Equal(preflight.Unknown))
		Expect(said.status).To(Equal(1))
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
	})
})

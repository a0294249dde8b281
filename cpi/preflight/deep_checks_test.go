package preflight

import (
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// healthyNode is what a probe tells of a node that has all.
const healthyNode = "kernel 6.1\ncgroup v2\noom-group 1\nloop yes\noverlay yes\next4 yes\nxfs yes\ndummy yes\nbridge yes\n" +
	"open-files yes\ndns yes\napi yes\nhairpin yes\n"

var _ = Describe("What probes have told", func() {
	evaluate := func(name string, probes ...nodeProbe) finding {
		GinkgoHelper()
		for _, check := range DeepChecks() {
			if check.Name == name {
				return check.evaluate(probes)
			}
		}
		Fail("there is no check " + name)
		return finding{}
	}
	on := func(node, message string) nodeProbe {
		return nodeProbe{node: node, facts: parseFacts(message), took: time.Second, addressRequested: true}
	}

	It("is well on nodes that have all", func() {
		for _, check := range DeepChecks() {
			Expect(check.evaluate([]nodeProbe{on("a", healthyNode), on("b", healthyNode)}).verdict).To(Equal(OK), check.Name)
		}
	})

	DescribeTable("names the nodes that lack something, and what to do about it:", func(fact, check string, verdict Verdict, detail, advice string) {
		lacking := on("b", strings.Replace(healthyNode, fact+" yes", fact+" no", 1))
		found := evaluate(check, on("a", healthyNode), lacking)
		Expect(found.verdict).To(Equal(verdict))
		Expect(found.detail).To(And(ContainSubstring(detail), HaveSuffix(" on b")))
		Expect(found.advice).To(ContainSubstring(advice))
	},
		Entry("loop devices", "loop", "loop-devices", Fails, "no loop device", "volume_mode: Block"),
		Entry("overlays", "overlay", "machine-state", Fails, "no overlay", "module overlay"),
		Entry("XFS", "xfs", "filesystems", Warns, "lacks xfs", "Garden wants xfs"),
		Entry("links", "dummy", "links", Warns, "lacks dummy", "BOSH DNS"),
		Entry("open files", "open-files", "open-files", Fails, "524,288", "LimitNOFILE"),
		Entry("names", "dns", "cluster-dns", Fails, "kubernetes.default.svc", "cluster's DNS"),
		Entry("the API server", "api", "in-cluster-api", Fails, "from within", "network policies"),
		Entry("hairpin traffic", "hairpin", "hairpin", Fails, "through its Service", "static addresses"),
	)

	It("is which nodes have which cgroups", func() {
		Expect(evaluate("cgroups", on("a", "cgroup v1\n"), on("b", "cgroup v2\n")).detail).To(Equal("cgroup v1 on a, v2 on b"))
	})

	It("is nothing where no probe has run, and why", func() {
		failed := nodeProbe{node: "a", err: errors.New("is not a shared or slave mount")}
		found := evaluate("run-machine", failed, on("b", healthyNode))
		Expect(found.verdict).To(Equal(Fails))
		Expect(found.detail).To(Equal("on a: is not a shared or slave mount"))
		for _, check := range DeepChecks()[1:] {
			Expect(check.evaluate([]nodeProbe{failed}).verdict).To(Equal(Unknown), check.Name)
		}
	})

	It("is that an address was not given to the Pod that asked for it", func() {
		first := on("a", healthyNode)
		first.address, first.addressRequested, first.addressErr = "10.1.2.3", true, errors.New("the Pod did not run")
		found := evaluate("requested-address", first)
		Expect(found.verdict).To(Equal(Fails))
		Expect(found.detail).To(Equal("a Pod that asked for 10.1.2.3 on a was not given it: the Pod did not run"))
	})
})

package preflight

import (
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

// healthyNode is the probe output of a node that meets all requirements.
const healthyNode = "kernel 6.1\ncgroup v2\noom-group 1\nloop yes\noverlay yes\next4 yes\nxfs yes\ndummy yes\nbridge yes\n" +
	"open-files yes\ndns yes\napi yes\nhairpin yes\nuser-namespaces yes\napparmor yes\nxfs-quotas yes\ncgroup-controllers yes\n" +
	"ip-forwarding yes\nnat yes\n"

var _ = Describe("Deep checks", func() {
	evaluate := func(name string, probes ...nodeProbe) finding {
		GinkgoHelper()
		for _, check := range DeepChecks() {
			if check.Name == name {
				return check.evaluate(probes)
			}
		}
		Fail("unknown check " + name)
		return finding{}
	}
	on := func(node, message string) nodeProbe {
		return nodeProbe{node: node, facts: parseFacts(message), took: time.Second, addressRequested: true}
	}

	It("pass on nodes that meet all requirements", func() {
		for _, check := range DeepChecks() {
			Expect(check.evaluate([]nodeProbe{on("a", healthyNode), on("b", healthyNode)}).verdict).To(Equal(OK), check.Name)
		}
	})

	DescribeTable("name the nodes that lack a feature, and the remedy:", func(fact, check string, verdict Verdict, detail, remedy string) {
		lacking := on("b", strings.Replace(healthyNode, fact+" yes", fact+" no", 1))
		found := evaluate(check, on("a", healthyNode), lacking)
		Expect(found.verdict).To(Equal(verdict))
		Expect(found.detail).To(And(ContainSubstring(detail), HaveSuffix(" on b")))
		Expect(found.remedy).To(ContainSubstring(remedy))
	},
		Entry("loop devices", "loop", "loop-devices", Fails, "no loop device", "volume_mode: Block"),
		Entry("overlays", "overlay", "vm-state", Fails, "overlay filesystems cannot be mounted", "module overlay"),
		Entry("XFS", "xfs", "filesystems", Warns, "missing: xfs", "which Garden requires"),
		Entry("links", "dummy", "links", Fails, "network links of type dummy cannot be created", "modprobe dummy"),
		Entry("AppArmor", "apparmor", "diego-cells", Warns, "missing: apparmor", `garden.apparmor_profile: ""`),
		Entry("NAT", "nat", "diego-cells", Warns, "missing: nat", "nf_tables"),
		Entry("open files", "open-files", "open-files", Fails, "524,288", "LimitNOFILE"),
		Entry("DNS", "dns", "cluster-dns", Fails, "kubernetes.default.svc", "cluster's DNS"),
		Entry("the API server", "api", "in-cluster-api", Fails, "cannot reach the API server", "network policies"),
		Entry("hairpin traffic", "hairpin", "hairpin", Fails, "through its Service", "static addresses"),
	)

	It("report the cgroup versions of the nodes", func() {
		Expect(evaluate("cgroups", on("a", "cgroup v1\n"), on("b", "cgroup v2\n")).detail).To(Equal("cgroup v1 on a, v2 on b"))
	})

	It("are unknown if no probe ran, and run-vm fails with the reason", func() {
		failed := nodeProbe{node: "a", err: errors.New("is not a shared or slave mount")}
		found := evaluate("run-vm", failed, on("b", healthyNode))
		Expect(found.verdict).To(Equal(Fails))
		Expect(found.detail).To(Equal("on a: is not a shared or slave mount"))
		for _, check := range DeepChecks()[1:] {
			Expect(check.evaluate([]nodeProbe{failed}).verdict).To(Equal(Unknown), check.Name)
		}
	})

	It("report nodes that do not run the image of bosh-node, with the code of the error", func() {
		failed := nodeProbe{node: "b"}
		failed.err = call.CodeNodeImageUnavailable.Errorf("the node mounts image volumes empty: no such file or directory")
		found := evaluate("node-image", on("a", healthyNode), failed)
		Expect(found.verdict).To(Equal(Fails))
		Expect(found.detail).To(Equal("on b: the node mounts image volumes empty: no such file or directory [node-image-unavailable]"))
	})

	It("report that a requested address was not assigned", func() {
		first := on("a", healthyNode)
		first.address, first.addressRequested, first.addressErr = "10.1.2.3", true, errors.New("the Pod did not run")
		found := evaluate("requested-address", first)
		Expect(found.verdict).To(Equal(Fails))
		Expect(found.detail).To(Equal("address 10.1.2.3 was requested on a but not assigned: the Pod did not run"))
	})
})

var _ = DescribeTable("The probes run on nodes", func(expected []string, nodes ...*corev1.Node) {
	var names []string
	for _, node := range preferUntainted(nodes) {
		names = append(names, node.Name)
	}
	Expect(names).To(Equal(expected))
},
	Entry("without taints, if there are any", []string{"b", "c"}, taintedNode("a", corev1.TaintEffectNoSchedule), taintedNode("b", ""),
		taintedNode("c", corev1.TaintEffectPreferNoSchedule), taintedNode("d", corev1.TaintEffectNoExecute)),
	Entry("with taints otherwise", []string{"a", "b"}, taintedNode("a", corev1.TaintEffectNoSchedule), taintedNode("b", corev1.TaintEffectNoExecute)),
)

func taintedNode(name string, effect corev1.TaintEffect) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if effect != "" {
		node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: effect}}
	}
	return node
}

var _ = It("Facts that a probe without privileges cannot find out are unknown", func() {
	facts := parseFacts("cgroup v2\nloop no\next4 yes\ndns no\n")
	admissionLimits{}.dropUnknown(facts)
	Expect(facts).To(HaveKeyWithValue("loop", "no"))
	admissionLimits{unprivileged: true}.dropUnknown(facts)
	Expect(facts).To(Equal(map[string]string{"cgroup": "v2", "ext4": "yes", "dns": "no"}))
})

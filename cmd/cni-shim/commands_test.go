package main_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const annotation = `{"bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`

var _ = Describe("CNI commands", func() {
	versions := []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	since := map[string]string{"ADD": "0.3.1", "DEL": "0.3.1", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
	var entries []any
	for _, version := range versions {
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
			entries = append(entries, Entry(command+" "+version, command, version, version >= since[command]))
		}
	}

	BeforeEach(func(ctx SpecContext) { createPod(ctx, "requesting", annotation) })

	DescribeTable("reach the delegate as sent by the runtime:", append(entries, func(command, version string, supported bool) {
		c := newCall(command, version, "requesting")
		got := c.run()
		if !supported {
			Expect(got.expectError().Code).To(BeEquivalentTo(1), "error code of the specification for an incompatible version")
			Expect(c.delegateCalls()).To(BeEmpty())
			return
		}
		Expect(got.Status).To(BeZero(), got.Stdout)
		Expect(c.delegateCalls()).To(HaveLen(1))
		recorded := c.delegateCalls()[0]
		Expect(recorded.Command).To(Equal(command))
		Expect([]string{recorded.ContainerID, recorded.NetNS, recorded.IfName}).To(Equal([]string{"c1", "/run/netns/none", "eth0"}))
		Expect(recorded.Stdin).To(SatisfyAll(
			HaveKeyWithValue("name", "net"), HaveKeyWithValue("cniVersion", version), HaveKeyWithValue("type", "testdelegate"),
			HaveKeyWithValue("mtu", BeEquivalentTo(1400)), Not(HaveKey("kubernetes")), Not(HaveKey("delegate"))))
		switch command {
		case "ADD":
			Expect(got.ips()).To(Equal([]string{"10.9.9.50/24"}))
			Expect(recorded.Args).To(Equal(c.Args + ";IP=10.9.9.50"))
			Expect(recorded.Stdin).NotTo(HaveKey("prevResult"))
		case "DEL", "CHECK":
			Expect(recorded.Args).To(Equal(c.Args))
			Expect(recorded.Stdin).To(HaveKey("prevResult"))
		case "GC":
			Expect(recorded.Stdin).To(HaveKey("cni.dev/valid-attachments"))
		}
		if command != "ADD" {
			Expect(got.Stdout).To(BeEmpty())
		}
	})...)

	It("include VERSION, which works without a configuration", func() {
		c := newCall("VERSION", "1.1.0", "requesting")
		got := c.run()
		Expect(got.Status).To(BeZero())
		Expect(got.Stdout).To(MatchJSON(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`))
		Expect(c.delegateCalls()).To(BeEmpty())
	})

	DescribeTable("are rejected for versions other than 0.3.1 to 1.1.0:", func(version string) {
		c := newCall("ADD", version, "requesting")
		d := c.run().expectError()
		Expect(d.Code).To(BeEquivalentTo(1))
		Expect(c.delegateCalls()).To(BeEmpty())
	}, Entry("older", "0.3.0"), Entry("newer", "2.0.0"))

	It("are rejected if they are unknown", func() {
		c := newCall("DANCE", "1.1.0", "requesting")
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(4)), HaveField("CNIVersion", "1.1.0")))
	})
})

var _ = Describe("ADD", func() {
	add := func(annotations string) func(SpecContext) call {
		return func(ctx SpecContext) call {
			createPod(ctx, "pod", annotations)
			return newCall("ADD", "1.0.0", "pod")
		}
	}

	It("passes a Pod without the annotation to the delegate", func(ctx SpecContext) {
		c := add(`{"other":"10.9.9.50"}`)(ctx)
		c.Shim["subnets"] = []string{"10.1.0.0/16"}
		got := c.run()
		Expect(got.ips()).To(Equal([]string{"10.9.9.9/24"}))
		Expect(c.delegateCalls()).To(ConsistOf(HaveField("Args", c.Args)))
		var result map[string]any
		Expect(json.Unmarshal([]byte(got.Stdout), &result)).To(Succeed())
		Expect(result).To(HaveKeyWithValue("unknown", "kept"))
	})

	It("passes a container that is not a Pod to the delegate, and sends no request to the API server", func() {
		c := newCall("ADD", "1.0.0", "")
		c.Args, c.Kubeconfig = "", "/does/not/exist"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.9/24"}))
	})

	It("reads the configured annotation", func(ctx SpecContext) {
		c := add(`{"example.org/address":"10.9.9.51","bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`)(ctx)
		c.Shim["annotation"] = "example.org/address"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.51/24"}))
	})

	It("replaces an address requested by the runtime", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Args = "IP=10.9.9.77;" + c.Args
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
		Expect(c.delegateCalls()[0].Args).NotTo(ContainSubstring("10.9.9.77"))
	})

	It("adds the capability ips to the runtimeConfig of a delegate that declares it", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Delegate["capabilities"] = map[string]bool{"ips": true, "portMappings": true}
		c.Shim["runtimeConfig"] = map[string]any{"portMappings": []any{}}
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
		Expect(c.delegateCalls()[0].Stdin["runtimeConfig"]).To(Equal(map[string]any{"ips": []any{"10.9.9.50"}, "portMappings": []any{}}))
		Expect(c.delegateCalls()[0].Args).To(HaveSuffix(";IP=10.9.9.50"))
	})

	DescribeTable("requests addresses of both families", func(ctx SpecContext, prepare func(call), key string) {
		c := add(`{"bosh.cloudfoundry.org/ip-address":"10.9.9.50, fd00::50"}`)(ctx)
		prepare(c)
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24", "fd00::50/64"}))
		Expect(c.delegateCalls()[0].Stdin).To(HaveKey(key))
		Expect(c.delegateCalls()[0].Args).To(HaveSuffix(";IP=10.9.9.50"), "plugins expect exactly one address")
	},
		Entry("by the capability", func(c call) { c.Delegate["capabilities"] = map[string]bool{"ips": true} }, "runtimeConfig"),
		Entry("by args.cni.ips", func(call) {}, "args"),
	)

	It("adds the prefix length of a configured subnet", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Shim["subnets"] = []string{"fd00::/64", "10.9.8.0/23"}
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/23"}))
		Expect(c.delegateCalls()[0].Args).To(HaveSuffix(";IP=10.9.9.50/23"))
	})

	It("rejects an address outside the configured subnets without calling the delegate", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Shim["subnets"] = []string{"10.1.0.0/16"}
		d := c.run().expectError()
		Expect(d.Code).To(BeEquivalentTo(100))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("10.9.9.50"), ContainSubstring("10.1.0.0/16"), ContainSubstring("bosh/pod")))
		Expect(c.delegateCalls()).To(BeEmpty())
	})

	DescribeTable("rejects a malformed annotation without calling the delegate:", func(ctx SpecContext, value string) {
		raw, _ := json.Marshal(map[string]string{"bosh.cloudfoundry.org/ip-address": value})
		c := add(string(raw))(ctx)
		d := c.run().expectError()
		Expect(d.Code).To(BeEquivalentTo(100))
		Expect(d.CNIVersion).To(Equal("1.0.0"))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("bosh.cloudfoundry.org/ip-address"), ContainSubstring("bosh/pod")))
		Expect(c.delegateCalls()).To(BeEmpty())
	},
		Entry("empty", ""), Entry("a name", "web-0"), Entry("a list in JSON", `["10.9.9.50"]`), Entry("a prefix", "10.9.9.50/24"),
		Entry("two of one IP family", "10.9.9.50,10.9.9.51"), Entry("a trailing comma", "10.9.9.50,"), Entry("a zone", "fe80::1%eth0"),
		Entry("another variable", "10.9.9.50;GATEWAY=1.2.3.4"), Entry("unspecified", "0.0.0.0"), Entry("IPv4 in IPv6", "::ffff:10.9.9.50"),
	)
})

package main_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const annotation = `{"bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`

var _ = Describe("Every command in every version", func() {
	versions := []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	since := map[string]string{"ADD": "0.3.1", "DEL": "0.3.1", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
	var entries []any
	for _, version := range versions {
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
			entries = append(entries, Entry(command+" "+version, command, version, version >= since[command]))
		}
	}

	BeforeEach(func(ctx SpecContext) { createPod(ctx, "asks", annotation) })

	DescribeTable("reaches the delegate as the runtime sent it", append(entries, func(command, version string, served bool) {
		c := newCall(command, version, "asks")
		got := c.run()
		if !served {
			Expect(got.failure().Code).To(BeEquivalentTo(1), "the specification's incompatible version")
			Expect(c.noted()).To(BeEmpty())
			return
		}
		Expect(got.Status).To(BeZero(), got.Stdout)
		Expect(c.noted()).To(HaveLen(1))
		noted := c.noted()[0]
		Expect(noted.Command).To(Equal(command))
		Expect([]string{noted.ContainerID, noted.NetNS, noted.IfName}).To(Equal([]string{"c1", "/run/netns/none", "eth0"}))
		Expect(noted.Stdin).To(SatisfyAll(
			HaveKeyWithValue("name", "net"), HaveKeyWithValue("cniVersion", version), HaveKeyWithValue("type", "testdelegate"),
			HaveKeyWithValue("mtu", BeEquivalentTo(1400)), Not(HaveKey("kubernetes")), Not(HaveKey("delegate"))))
		switch command {
		case "ADD":
			Expect(got.ips()).To(Equal([]string{"10.9.9.50/24"}))
			Expect(noted.Args).To(Equal(c.Args + ";IP=10.9.9.50"))
			Expect(noted.Stdin).NotTo(HaveKey("prevResult"))
		case "DEL", "CHECK":
			Expect(noted.Args).To(Equal(c.Args))
			Expect(noted.Stdin).To(HaveKey("prevResult"))
		case "GC":
			Expect(noted.Stdin).To(HaveKey("cni.dev/valid-attachments"))
		}
		if command != "ADD" {
			Expect(got.Stdout).To(BeEmpty())
		}
	})...)

	It("answers VERSION without a configuration", func() {
		c := newCall("VERSION", "1.1.0", "asks")
		got := c.run()
		Expect(got.Status).To(BeZero())
		Expect(got.Stdout).To(MatchJSON(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`))
		Expect(c.noted()).To(BeEmpty())
	})

	DescribeTable("refuses a version outside the specification's 0.3.1 to 1.1.0", func(version string) {
		c := newCall("ADD", version, "asks")
		d := c.run().failure()
		Expect(d.Code).To(BeEquivalentTo(1))
		Expect(c.noted()).To(BeEmpty())
	}, Entry("older", "0.3.0"), Entry("newer", "2.0.0"))

	It("refuses a command that it does not know", func() {
		c := newCall("DANCE", "1.1.0", "asks")
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(4)), HaveField("CNIVersion", "1.1.0")))
	})
})

var _ = Describe("ADD", func() {
	add := func(annotations string) func(SpecContext) call {
		return func(ctx SpecContext) call {
			createPod(ctx, "pod", annotations)
			return newCall("ADD", "1.0.0", "pod")
		}
	}

	It("leaves a Pod without annotation to the delegate", func(ctx SpecContext) {
		c := add(`{"other":"10.9.9.50"}`)(ctx)
		c.Shim["subnets"] = []string{"10.1.0.0/16"}
		got := c.run()
		Expect(got.ips()).To(Equal([]string{"10.9.9.9/24"}))
		Expect(c.noted()).To(ConsistOf(HaveField("Args", c.Args)))
		var result map[string]any
		Expect(json.Unmarshal([]byte(got.Stdout), &result)).To(Succeed())
		Expect(result).To(HaveKeyWithValue("unknown", "kept"))
	})

	It("leaves a container that is no Pod to the delegate, without asking the API", func() {
		c := newCall("ADD", "1.0.0", "")
		c.Args, c.Kubeconfig = "", "/does/not/exist"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.9/24"}))
	})

	It("takes the annotation's name from the configuration", func(ctx SpecContext) {
		c := add(`{"example.org/address":"10.9.9.51","bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`)(ctx)
		c.Shim["annotation"] = "example.org/address"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.51/24"}))
	})

	It("replaces an address that the runtime asked for", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Args = "IP=10.9.9.77;" + c.Args
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
		Expect(c.noted()[0].Args).NotTo(ContainSubstring("10.9.9.77"))
	})

	It("passes the capability ips to a delegate that declares it, beside what the runtime put there", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Delegate["capabilities"] = map[string]bool{"ips": true, "portMappings": true}
		c.Shim["runtimeConfig"] = map[string]any{"portMappings": []any{}}
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
		Expect(c.noted()[0].Stdin["runtimeConfig"]).To(Equal(map[string]any{"ips": []any{"10.9.9.50"}, "portMappings": []any{}}))
		Expect(c.noted()[0].Args).To(HaveSuffix(";IP=10.9.9.50"))
	})

	DescribeTable("asks for both families", func(ctx SpecContext, prepare func(call), key string) {
		c := add(`{"bosh.cloudfoundry.org/ip-address":"10.9.9.50, fd00::50"}`)(ctx)
		prepare(c)
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24", "fd00::50/64"}))
		Expect(c.noted()[0].Stdin).To(HaveKey(key))
		Expect(c.noted()[0].Args).To(HaveSuffix(";IP=10.9.9.50"), "plugins expect one address there")
	},
		Entry("by the capability", func(c call) { c.Delegate["capabilities"] = map[string]bool{"ips": true} }, "runtimeConfig"),
		Entry("by args.cni.ips", func(call) {}, "args"),
	)

	It("adds the prefix length of a configured subnet", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Shim["subnets"] = []string{"fd00::/64", "10.9.8.0/23"}
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/23"}))
		Expect(c.noted()[0].Args).To(HaveSuffix(";IP=10.9.9.50/23"))
	})

	It("refuses an address outside the configured subnets before the delegate is called", func(ctx SpecContext) {
		c := add(annotation)(ctx)
		c.Shim["subnets"] = []string{"10.1.0.0/16"}
		d := c.run().failure()
		Expect(d.Code).To(BeEquivalentTo(100))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("10.9.9.50"), ContainSubstring("10.1.0.0/16"), ContainSubstring("bosh/pod")))
		Expect(c.noted()).To(BeEmpty())
	})

	DescribeTable("refuses a malformed annotation before the delegate is called", func(ctx SpecContext, value string) {
		raw, _ := json.Marshal(map[string]string{"bosh.cloudfoundry.org/ip-address": value})
		c := add(string(raw))(ctx)
		d := c.run().failure()
		Expect(d.Code).To(BeEquivalentTo(100))
		Expect(d.CNIVersion).To(Equal("1.0.0"))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("bosh.cloudfoundry.org/ip-address"), ContainSubstring("bosh/pod")))
		Expect(c.noted()).To(BeEmpty())
	},
		Entry("empty", ""), Entry("a name", "web-0"), Entry("a list in JSON", `["10.9.9.50"]`), Entry("a prefix", "10.9.9.50/24"),
		Entry("two of one family", "10.9.9.50,10.9.9.51"), Entry("a trailing comma", "10.9.9.50,"), Entry("a zone", "fe80::1%eth0"),
		Entry("another variable", "10.9.9.50;GATEWAY=1.2.3.4"), Entry("unspecified", "0.0.0.0"), Entry("IPv4 in IPv6", "::ffff:10.9.9.50"),
	)
})

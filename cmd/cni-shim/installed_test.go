package main_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The installed shim", func() {
	It("has what it needs, on a node whose network takes addresses", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		dir := GinkgoT().TempDir()
		record := filepath.Join(dir, "calls")
		network, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "net", "plugins": []any{
			map[string]any{"type": "testdelegate", "test": map[string]any{"record": record}}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, "10-net.conflist"), network, 0o600)).To(Succeed())
		run := func(name string, args ...string) error {
			command := exec.CommandContext(ctx, program, append([]string{name, "-bin-dir=" + dir, "-conf-dir=" + dir}, args...)...)
			command.Env = []string{} // no CNI_COMMAND
			command.Stderr = GinkgoWriter
			return command.Run()
		}
		from := []string{"-server=" + plane.URL(), "-service-account=" + account}
		Expect(run("verify", from...)).NotTo(Succeed())
		Expect(run("install", from...)).To(Succeed())
		Expect(run("verify", from...)).To(Succeed())

		c := newCall("ADD", "1.0.0", "pod")
		raw, err := os.ReadFile(filepath.Join(dir, "00-bosh-cni-shim.conflist"))
		Expect(err).NotTo(HaveOccurred())
		var installed struct{ Plugins []map[string]any }
		Expect(json.Unmarshal(raw, &installed)).To(Succeed())
		maps.Copy(c.Shim, installed.Plugins[0])
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))

		Expect(run("uninstall")).To(Succeed())
		Expect(filepath.Join(dir, "bosh-cni-shim")).NotTo(BeAnExistingFile())
		Expect(filepath.Join(dir, "10-net.conflist")).To(BeAnExistingFile())
	})

	It("may look at a Pod, and do nothing else", func(ctx SpecContext) {
		can := func(verb, resource string, more ...string) string {
			answer, _ := plane.Kubectl(ctx, append([]string{"auth", "can-i", verb, resource, "--all-namespaces",
				"--as=system:serviceaccount:bosh-cni-shim:bosh-cni-shim"}, more...)...) // "no" is an exit status, too
			return answer
		}
		Expect(can("get", "pods")).To(Equal("yes\n"))
		for _, verb := range []string{"list", "watch", "create", "update", "patch", "delete"} {
			Expect(can(verb, "pods")).To(Equal("no\n"), verb)
		}
		for _, resource := range []string{"secrets", "configmaps", "nodes"} {
			Expect(can("get", resource)).To(Equal("no\n"), resource)
		}
		Expect(can("get", "pods", "--subresource=log")).To(Equal("no\n"))
	})

	It("is taken away by a manifest that the API server takes, in the place of the first", func(ctx SpecContext) {
		manifest, err := os.ReadFile("../../docs/cni-shim/uninstall.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(plane.Apply(ctx, string(manifest))).To(Succeed())
		applyDaemonSet(ctx)
	})
})

package main_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The installed shim", func() {
	It("has what it needs, on a node whose network takes addresses", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		Expect(n.add("pod").run().ips()).To(Equal([]string{"10.9.9.50/24"}))

		Expect(n.run(ctx, "uninstall")).To(Succeed())
		Expect(n.run(ctx, "verify", n.from...)).NotTo(Succeed())
		Expect(filepath.Join(n.dir, "bosh-cni-shim")).NotTo(BeAnExistingFile())
		Expect(filepath.Join(n.dir, "10-net.conflist")).To(BeAnExistingFile())
	})

	It("goes on when the DaemonSet's Pod is gone, and none that could be started takes its place", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		n.removeInstaller(ctx)
		own, err := os.ReadFile(filepath.Join(n.dir, "token"))
		Expect(err).NotTo(HaveOccurred())
		c := newCall("ADD", "1.0.0", "pod")
		c.Kubeconfig, c.Timeout = kubeconfig(c.dir, plane.URL(), string(own), caOf(plane)), "1s"
		Eventually(func() string { return c.run().failure().Msg }).WithTimeout(time.Minute).
			Should(ContainSubstring("does not accept the credentials"), "the Pod's own token ends with the Pod")
		Expect(n.add("pod").run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})

	It("gets another token when the account that it had one of was made anew", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		_, err := plane.Kubectl(ctx, "delete", "serviceaccount", "bosh-cni-shim", "--namespace", "bosh-cni-shim")
		Expect(err).NotTo(HaveOccurred())
		applyDaemonSet(ctx)
		writeAccount(ctx) // for the specs that come after
		refused := n.add("pod")
		Eventually(func() int { return refused.run().Status }).WithTimeout(time.Minute).Should(Equal(1))
		watching, stop := context.WithCancel(ctx)
		defer stop()
		watch := n.command(watching, "install", append(n.from, "-watch")...)
		Expect(watch.Start()).To(Succeed())
		Eventually(func() int { return refused.run().Status }).WithTimeout(time.Minute).Should(BeZero())
		stop()
		_ = watch.Wait()
	})

	It("does not ask the API about Pods of other namespaces than those that it is for", func() {
		at, requests := faulty(status(http.StatusUnauthorized))
		c := newCall("ADD", "1.0.0", "pod")
		c.Kubeconfig, c.Shim["namespaces"] = at.kubeconfig(c.dir), []string{"machines"}
		Expect(c.run().ips()).NotTo(BeEmpty())
		Expect(requests.Load()).To(BeZero())
		c.Shim["namespaces"], c.Timeout = []string{"machines", namespace}, "1s"
		Expect(c.run().failure().Code).To(BeEquivalentTo(11))
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
		Expect(can("create", "serviceaccounts/bosh-cni-shim", "--subresource=token")).To(Equal("no\n"), "its token is not its own to renew")
	})

	It("is installed by an account that may request its token, and do nothing else", func(ctx SpecContext) {
		can := func(verb, resource string, more ...string) string {
			answer, _ := plane.Kubectl(ctx, append([]string{"auth", "can-i", verb, resource, "--namespace=bosh-cni-shim",
				"--as=system:serviceaccount:bosh-cni-shim:bosh-cni-shim-installer"}, more...)...)
			return answer
		}
		Expect(can("create", "serviceaccounts/bosh-cni-shim", "--subresource=token")).To(Equal("yes\n"))
		Expect(can("create", "serviceaccounts/bosh-cni-shim-installer", "--subresource=token")).To(Equal("no\n"))
		for _, resource := range []string{"pods", "secrets", "serviceaccounts"} {
			Expect(can("get", resource)).To(Equal("no\n"), resource)
		}
	})

	It("is taken away by a manifest that the API server takes, in the place of the first", func(ctx SpecContext) {
		manifest, err := os.ReadFile("../../docs/cni-shim/uninstall.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(plane.Apply(ctx, string(manifest))).To(Succeed())
		applyDaemonSet(ctx)
	})
})

// installedNode is a node on which a Pod of the DaemonSet has installed the shim.
type installedNode struct {
	dir  string
	from []string // the options that the manifest gives, and where the Pod's own token is
}

func newInstalledNode(ctx context.Context) installedNode {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	n := installedNode{dir, []string{"-server=" + plane.URL(), "-service-account=" + dir, "-token-for=bosh-cni-shim/bosh-cni-shim", "-namespaces=" + namespace}}
	n.write("10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"testdelegate","test":{"record":"`+filepath.Join(dir, "calls")+`"}}]}`)
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"installer","namespace":"bosh-cni-shim"},
		"spec":{"nodeName":"nowhere","serviceAccountName":"bosh-cni-shim-installer","containers":[{"name":"c","image":"none"}]}}`)).To(Succeed())
	DeferCleanup(n.removeInstaller)
	token, err := plane.Kubectl(ctx, "create", "token", "bosh-cni-shim-installer", "--namespace=bosh-cni-shim",
		"--bound-object-kind=Pod", "--bound-object-name=installer")
	Expect(err).NotTo(HaveOccurred())
	n.write("token", strings.TrimSpace(token))
	n.write("ca.crt", caOf(plane))
	Expect(n.run(ctx, "install", n.from...)).To(Succeed())
	Expect(n.run(ctx, "verify", n.from...)).To(Succeed())
	return n
}

func (n installedNode) write(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(n.dir, name), []byte(content), 0o600)).To(Succeed())
}

func (n installedNode) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, append([]string{name, "-bin-dir=" + n.dir, "-conf-dir=" + n.dir}, args...)...)
	command.Env = []string{} // no CNI_COMMAND
	command.Stderr = GinkgoWriter
	return command
}

func (n installedNode) run(ctx context.Context, name string, args ...string) error {
	return n.command(ctx, name, args...).Run()
}

// removeInstaller deletes the DaemonSet's Pod, as an upgrade does.
func (installedNode) removeInstaller(ctx context.Context) {
	GinkgoHelper()
	_, err := plane.Kubectl(ctx, "delete", "pod", "installer", "--namespace=bosh-cni-shim", "--force", "--grace-period=0", "--ignore-not-found")
	Expect(err).NotTo(HaveOccurred())
}

// add is an ADD for the Pod by the network that is installed.
func (n installedNode) add(pod string) call {
	GinkgoHelper()
	c := newCall("ADD", "1.0.0", pod)
	raw, err := os.ReadFile(filepath.Join(n.dir, "00-bosh-cni-shim.conflist"))
	Expect(err).NotTo(HaveOccurred())
	var installed struct{ Plugins []map[string]any }
	Expect(json.Unmarshal(raw, &installed)).To(Succeed())
	maps.Copy(c.Shim, installed.Plugins[0])
	return c
}

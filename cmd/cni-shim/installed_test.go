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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("The installed shim", func() {
	It("assigns requested addresses until it is uninstalled", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		Expect(n.add("pod").run().ips()).To(Equal([]string{"10.9.9.50/24"}))

		Expect(n.run(ctx, "uninstall")).To(Succeed())
		Expect(n.run(ctx, "verify", n.options...)).NotTo(Succeed())
		Expect(filepath.Join(n.dir, "bosh-cni-shim")).NotTo(BeAnExistingFile())
		Expect(filepath.Join(n.dir, "10-net.conflist")).To(BeAnExistingFile())
	})

	It("continues to work after the DaemonSet's Pod is deleted and not replaced", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		n.deleteInstallerPod(ctx)
		podToken, err := os.ReadFile(filepath.Join(n.dir, "token"))
		Expect(err).NotTo(HaveOccurred())
		c := newCall("ADD", "1.0.0", "pod")
		c.Kubeconfig, c.Timeout = writeKubeconfig(c.dir, controlPlane.URL(), string(podToken), readCA(controlPlane)), "1s"
		Eventually(func() string { return c.run().expectError().Msg }).
			Should(ContainSubstring("still rejects the credentials"), "the token of the deleted Pod is still accepted")
		Expect(n.add("pod").run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})

	It("gets a new token after its service account is recreated", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		n := newInstalledNode(ctx)
		_, err := controlPlane.Kubectl(ctx, "delete", "serviceaccount", "bosh-cni-shim", "--namespace", "bosh-cni-shim")
		Expect(err).NotTo(HaveOccurred())
		applyDaemonSet(ctx)
		writeAccountFiles(ctx) // restore the files of the account for later specs
		add := n.add("pod")
		Eventually(func() int { return add.run().Status }).Should(Equal(1))
		watchCtx, stop := context.WithCancel(ctx)
		defer stop()
		watch := n.command(watchCtx, "install", append(n.options, "-watch")...)
		Expect(watch.Start()).To(Succeed())
		Eventually(func() int { return add.run().Status }).Should(BeZero())
		stop()
		_ = watch.Wait()
	})

	It("sends no requests for Pods in other namespaces", func() {
		api, requests := newFaultyServer(statusHandler(http.StatusUnauthorized))
		c := newCall("ADD", "1.0.0", "pod")
		c.Kubeconfig, c.Shim["namespaces"] = api.kubeconfig(c.dir), []string{"vms"}
		Expect(c.run().ips()).NotTo(BeEmpty())
		Expect(requests.Load()).To(BeZero())
		c.Shim["namespaces"], c.Timeout = []string{"vms", namespace}, "1s"
		Expect(c.run().expectError().Code).To(BeEquivalentTo(11))
	})

	It("can only get Pods", func(ctx SpecContext) {
		canI := func(verb, resource string) bool { return mayAccess(ctx, "bosh-cni-shim", verb, "", resource) }
		Expect(canI("get", "pods")).To(BeTrue())
		for _, verb := range []string{"list", "watch", "create", "update", "patch", "delete"} {
			Expect(canI(verb, "pods")).To(BeFalse(), verb)
		}
		for _, resource := range []string{"secrets", "configmaps", "nodes", "pods/pod/log"} {
			Expect(canI("get", resource)).To(BeFalse(), resource)
		}
		Expect(canI("create", "serviceaccounts/bosh-cni-shim/token")).To(BeFalse(), "the installer renews its token")
	})

	It("has an installer with a service account that can only request the shim's token", func(ctx SpecContext) {
		canI := func(verb, resource string) bool {
			return mayAccess(ctx, "bosh-cni-shim-installer", verb, "bosh-cni-shim", resource)
		}
		Expect(canI("create", "serviceaccounts/bosh-cni-shim/token")).To(BeTrue())
		Expect(canI("create", "serviceaccounts/bosh-cni-shim-installer/token")).To(BeFalse())
		for _, resource := range []string{"pods", "secrets", "serviceaccounts"} {
			Expect(canI("get", resource)).To(BeFalse(), resource)
		}
	})

	It("has an uninstall manifest that can be applied over the DaemonSet", func(ctx SpecContext) {
		manifest, err := os.ReadFile("../../manifests/cni-shim/uninstall.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Apply(ctx, string(manifest))).To(Succeed())
		applyDaemonSet(ctx)
	})
})

// mayAccess reports whether a service account in the namespace bosh-cni-shim has a permission. The resource can be
// RESOURCE/NAME/SUBRESOURCE. An empty namespace means all namespaces.
func mayAccess(ctx context.Context, account, verb, namespace, resource string) bool {
	GinkgoHelper()
	attributes := &authorizationv1.ResourceAttributes{Verb: verb, Namespace: namespace, Resource: resource}
	if parts := strings.Split(resource, "/"); len(parts) == 3 {
		attributes.Resource, attributes.Name, attributes.Subresource = parts[0], parts[1], parts[2]
	}
	review, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:bosh-cni-shim:" + account, ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return review.Status.Allowed
}

// installedNode is a node on which a Pod of the DaemonSet installed the shim.
type installedNode struct {
	dir     string
	options []string // options as in the manifest, with the directory of the Pod's token
}

func newInstalledNode(ctx context.Context) installedNode {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	n := installedNode{dir, []string{"-server=" + controlPlane.URL(), "-service-account=" + dir, "-token-for=bosh-cni-shim/bosh-cni-shim", "-namespaces=" + namespace}}
	n.write("10-net.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"testdelegate","test":{"record":"`+filepath.Join(dir, "calls")+`"}}]}`)
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"installer","namespace":"bosh-cni-shim"},
		"spec":{"nodeName":"nowhere","serviceAccountName":"bosh-cni-shim-installer","containers":[{"name":"c","image":"none"}]}}`)).To(Succeed())
	DeferCleanup(n.deleteInstallerPod)
	token, err := controlPlane.Kubectl(ctx, "create", "token", "bosh-cni-shim-installer", "--namespace=bosh-cni-shim",
		"--bound-object-kind=Pod", "--bound-object-name=installer")
	Expect(err).NotTo(HaveOccurred())
	n.write("token", strings.TrimSpace(token))
	n.write("ca.crt", readCA(controlPlane))
	Expect(n.run(ctx, "install", n.options...)).To(Succeed())
	Expect(n.run(ctx, "verify", n.options...)).To(Succeed())
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

// deleteInstallerPod deletes the Pod of the DaemonSet, as an upgrade does.
func (installedNode) deleteInstallerPod(ctx context.Context) {
	GinkgoHelper()
	_, err := controlPlane.Kubectl(ctx, "delete", "pod", "installer", "--namespace=bosh-cni-shim", "--force", "--grace-period=0", "--ignore-not-found")
	Expect(err).NotTo(HaveOccurred())
}

// add returns an ADD call for the Pod with the installed network configuration.
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

//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// shimManifests are the manifests in manifests/cni-shim with the settings that docs/guides/cni-shim.md requires.
type shimManifests struct {
	plane                   *embedded.ControlPlane
	daemonset, uninstallJob string
	files                   []string // paths of the installed shim's files on the node
}

// A subnet is for a delegate that requires addresses with a prefix length.
func (env *testEnv) newShimManifests(subnet string) shimManifests {
	GinkgoHelper()
	node := env.embedded.Nodes[0]
	plugins, networks := filepath.Join(node.Dir, "plugins"), filepath.Join(node.Dir, "cni")
	replacements := []string{
		"registry.example.org/bosh-cni-shim:1", os.Getenv("E2E_CNI_SHIM"),
		"-namespaces=bosh", "-namespaces=" + env.namespace, "/opt/cni/bin", plugins, "/etc/cni/net.d", networks,
	}
	if subnet != "" {
		replacements = append(replacements, "                - verify\n", "                - verify\n                - -subnets="+subnet+"\n",
			"# - -subnets=10.244.9.0/24", "- -subnets="+subnet)
	}
	settings := strings.NewReplacer(replacements...)
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join("../../manifests/cni-shim", name))
		Expect(err).NotTo(HaveOccurred())
		return settings.Replace(string(raw))
	}
	return shimManifests{
		plane: env.embedded.ControlPlane, daemonset: read("daemonset.yaml"), uninstallJob: read("uninstall.yaml"),
		files: []string{filepath.Join(plugins, "bosh-cni-shim"), filepath.Join(networks, "00-bosh-cni-shim.conflist"), filepath.Join(networks, "bosh-cni-shim.kubeconfig")},
	}
}

func (s shimManifests) install(ctx context.Context) {
	GinkgoHelper()
	DeferCleanup(s.uninstall)
	s.apply(ctx, s.daemonset)
	for _, file := range s.files {
		Expect(file).To(BeAnExistingFile())
	}
}

// upgrade rolls out a changed DaemonSet. It returns how often it did not find one of the shim's files during the rollout.
func (s shimManifests) upgrade(ctx context.Context) int64 {
	GinkgoHelper()
	var notFound atomic.Int64
	watchCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for watchCtx.Err() == nil {
			for _, file := range s.files {
				if _, err := os.Stat(file); err != nil {
					notFound.Add(1)
				}
			}
		}
	}()
	s.apply(ctx, strings.Replace(s.daemonset, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 4", 1))
	stop()
	<-done
	return notFound.Load()
}

// uninstall uninstalls the shim if it is installed.
func (s shimManifests) uninstall(ctx context.Context) {
	GinkgoHelper()
	if existing, err := s.plane.Kubectl(ctx, "get", "namespace/bosh-cni-shim", "--ignore-not-found", "-o", "name"); err != nil || existing == "" {
		Expect(err).NotTo(HaveOccurred())
		return
	}
	s.apply(ctx, s.uninstallJob)
	for _, file := range s.files {
		Expect(file).NotTo(BeAnExistingFile())
	}
	_, err := embedded.RunInput(ctx, s.daemonset, "kubectl", "--kubeconfig", s.plane.Kubeconfig("admin"), "delete", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// apply applies the manifests and waits until the DaemonSet is rolled out.
func (s shimManifests) apply(ctx context.Context, manifests string) {
	GinkgoHelper()
	Expect(s.plane.Apply(ctx, manifests)).To(Succeed())
	_, err := s.plane.Kubectl(ctx, "rollout", "status", "-n", "bosh-cni-shim", "daemonset/bosh-cni-shim", "--timeout=2m")
	Expect(err).NotTo(HaveOccurred(), func() string {
		pods, _ := s.plane.Kubectl(ctx, "describe", "pods", "-n", "bosh-cni-shim")
		logs, _ := s.plane.Kubectl(ctx, "logs", "-n", "bosh-cni-shim", "-l", "app.kubernetes.io/name=bosh-cni-shim", "--all-containers")
		return pods + logs
	})
}

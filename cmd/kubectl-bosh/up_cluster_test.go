package main_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	clusters "bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// recordedCluster returns the cluster recorded in up.yml.
func (ws workspace) recordedCluster() *clusters.Identity {
	GinkgoHelper()
	var settings struct{ Cluster *clusters.Identity }
	Expect(yaml.Unmarshal([]byte(ws.read("kubernetes/up.yml")), &settings)).To(Succeed())
	return settings.Cluster
}

// newServerAlias starts a proxy that serves the API server under another name, with a certificate of another authority. It returns the
// proxy and the path of an administrator's kubeconfig for it.
func (ws workspace) newServerAlias() (*apiproxy.Proxy, string) {
	GinkgoHelper()
	proxy, err := apiproxy.NewTLS(controlPlane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	config, err := clientcmd.LoadFromFile(controlPlane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	current := config.Contexts[config.CurrentContext]
	config.Clusters[current.Cluster].Server = proxy.URL()
	config.Clusters[current.Cluster].CertificateAuthority = ""
	config.Clusters[current.Cluster].CertificateAuthorityData = proxy.CACertificate()
	config.Contexts["other-name"] = current
	config.CurrentContext = "other-name"
	path := ws.path("other-name.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return proxy, path
}

func currentContext(kubeconfig string) string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	return config.CurrentContext
}

func systemUID(ctx context.Context) string {
	GinkgoHelper()
	namespace, err := cluster.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return string(namespace.UID)
}

var _ = Describe("The cluster of a directory", func() {
	var ws workspace
	BeforeEach(func() { ws = newWorkspaceWithCLI() })

	It("is recorded in up.yml by the first run of up", func(ctx SpecContext) {
		ws.planOutput()
		Expect(ws.recordedCluster()).To(HaveValue(And(HaveField("Server", controlPlane.URL()), HaveField("Context", currentContext(ws.kubeconfig)),
			HaveField("UID", systemUID(ctx)), HaveField("Authorities", HaveLen(1)))))
	})

	It("is shown with the kubeconfig's context in the plan", func() {
		Expect(ws.planOutput()).To(MatchRegexp(`API server +` + controlPlane.URL() + ` \(context ` + currentContext(ws.kubeconfig) + `\), v1\.`))
	})

	It("is shown with the kubeconfig's context in the confirmation prompts of up and down", func() {
		location := "in namespace " + ws.namespace + " of the cluster " + regexp.QuoteMeta(controlPlane.URL()+" (context "+currentContext(ws.kubeconfig)+")")
		Expect(ws.up().Out).To(gbytes.Say(`Create or update the director kubernetes ` + location + `\? \[yN\]: `))
		Expect(ws.down().Out).To(gbytes.Say(`Delete the director kubernetes ` + location + `, including its disk, and the namespace if it is empty\? \[yN\]: `))
	})

	It("gets its UID from the first operator with permission to get kube-system", func(ctx SpecContext) {
		administrator := ws.kubeconfig
		ws.kubeconfig = newTestEnv(ctx).createAccount(ctx, "guest", "")
		ws.planOutput("--address", "10.246.0.78")
		Expect(ws.recordedCluster().UID).To(BeEmpty())
		Expect(ws.recordedCluster().Authorities).NotTo(BeEmpty())
		ws.kubeconfig = administrator
		Expect(ws.run("", "up", "--dry-run")).To(gexec.Exit(0))
		Expect(ws.recordedCluster().UID).To(Equal(systemUID(ctx)))
	})
})

var _ = Describe("A kubeconfig for another cluster than the directory's", Ordered, func() {
	var (
		ws    workspace
		other *embedded.ControlPlane
		first string
		files map[string]string
	)
	BeforeAll(func(ctx SpecContext) {
		var err error
		other, err = embedded.NewTestControlPlane(filepath.Join(GinkgoT().TempDir(), "control-plane"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return other.Stop() })
		Expect(other.Start(ctx)).To(Succeed())
		ws = newWorkspaceWithCLI()
		first = ws.kubeconfig
		Expect(ws.up()).To(gexec.Exit(0))
		Expect(os.Remove(ws.path("calls"))).To(Succeed())
		files = ws.readFiles()
		ws.kubeconfig = other.Kubeconfig("admin")
	})

	for _, command := range [][]string{{"up", "-y"}, {"up", "--dry-run"}, {"down", "-y"}, {"down", "-y", "--force"}} {
		It("is rejected by "+strings.Join(command, " ")+" before any change", func(ctx SpecContext) {
			session := ws.run("", append(command, "--bosh", "./create-env")...)
			Expect(session).To(gexec.Exit(1))
			Expect(session.Err).To(gbytes.Say(`^error: directory kubernetes belongs to a director in another cluster: kubernetes/up\.yml was written for ` +
				regexp.QuoteMeta(controlPlane.URL()+" (context "+currentContext(first)+")") + `, but your kubeconfig selects ` +
				regexp.QuoteMeta(other.URL()+" (context "+currentContext(ws.kubeconfig)+")") + `; namespace kube-system has the UID \S+ there and \S+ here ` +
				`\(--context and --kubeconfig select the cluster, --dir selects the directory\)`))
			Expect(ws.readFiles()).To(Equal(files))
			Expect(ws.path("calls")).NotTo(BeAnExistingFile())
			namespaces, err := other.Kubectl(ctx, "get", "namespaces", "-o", "name")
			Expect(err).NotTo(HaveOccurred())
			Expect(namespaces).NotTo(ContainSubstring(ws.namespace))
		})
	}
})

// readFiles returns the content of the files in the environment directory, by path.
func (ws workspace) readFiles() map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	Expect(filepath.WalkDir(ws.path("kubernetes"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			content, readErr := os.ReadFile(path)
			found[path], err = string(content), readErr
		}
		return err
	})).To(Succeed())
	return found
}

var _ = Describe("The manifest of an existing director", func() {
	var (
		ws       workspace
		manifest string
	)
	BeforeEach(func() {
		ws = newWorkspaceWithCLI()
		Expect(ws.up()).To(gexec.Exit(0))
		manifest = ws.read("manifest.yml")
	})

	It("is unchanged if another administrator's kubeconfig has another name of the server", func() {
		_, ws.kubeconfig = ws.newServerAlias()
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`kubernetes/cpi\.kubeconfig: kept the recorded API server ` + controlPlane.URL() + `, which is still reachable\n`))
		Expect(ws.read("manifest.yml")).To(Equal(manifest), "create-env would recreate the director's VM")
	})

	It("is unchanged if the first administrator runs up again", func() {
		first := ws.kubeconfig
		_, ws.kubeconfig = ws.newServerAlias()
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		ws.kubeconfig = first
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(ws.read("manifest.yml")).To(Equal(manifest))
	})

	It("changes if the directory was moved, which the plan shows", func() {
		Expect(os.Rename(ws.path("kubernetes"), ws.path("moved"))).To(Succeed())
		session := ws.run("", "up", "--dir", "moved", "--dry-run")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`cpi\.kubeconfig +the directory was moved from ` + ws.path("kubernetes") + `; create-env recreates the director's VM`))
	})
})

var _ = Describe("A recorded API server that does not work any more", func() {
	var ws workspace
	BeforeEach(func() {
		ws = newWorkspaceWithCLI()
		first := ws.kubeconfig
		var proxy *apiproxy.Proxy
		proxy, ws.kubeconfig = ws.newServerAlias()
		Expect(ws.up()).To(gexec.Exit(0))
		proxy.Close()
		ws.kubeconfig = first
		Expect(os.Remove(ws.path("calls"))).To(Succeed())
	})

	It("makes up fail with the flag that replaces it", func() {
		previous := ws.read("kubernetes/cpi.kubeconfig")
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: cannot use API server https://127\.0\.0\.1:\d+, recorded in kubernetes/cpi\.kubeconfig: .*` +
			`; to use ` + controlPlane.URL() + ` from your kubeconfig instead, rerun with --replace-server \(create-env then recreates the director's VM\)`))
		Expect(ws.read("kubernetes/cpi.kubeconfig")).To(Equal(previous))
		Expect(ws.path("calls")).NotTo(BeAnExistingFile())
	})

	It("is replaced with --replace-server, which the plan shows", func() {
		session := ws.run("y\n", "up", "--bosh", "./create-env", "--replace-server")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`cpi\.kubeconfig +API server replaced with the one in your kubeconfig \(--replace-server\); create-env recreates the director's VM`))
		Expect(ws.read("kubernetes/cpi.kubeconfig")).To(ContainSubstring(controlPlane.URL()))
	})

	It("does not prevent down from deleting the director", func() {
		Expect(ws.down()).To(gexec.Exit(0))
		Expect(ws.read("calls")).To(ContainSubstring("\ndelete-env\n"))
	})
})

var _ = DescribeTable("A cluster is compared with the recorded one", func(recorded, current clusters.Identity, mismatch string) {
	if mismatch == "" {
		Expect(recorded.Mismatch(current)).To(BeEmpty())
	} else {
		Expect(recorded.Mismatch(current)).To(HavePrefix(mismatch))
	}
},
	Entry("by its UID, with any name", clusters.Identity{Server: "https://a", UID: "1", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://b", UID: "1", Authorities: []string{"y"}}, ""),
	Entry("by another UID with the same name, as after a cluster was recreated", clusters.Identity{Server: "https://a", UID: "1"},
		clusters.Identity{Server: "https://a", UID: "2"}, "namespace kube-system has the UID 1 there and 2 here"),
	Entry("without a UID, by its name and authority", clusters.Identity{Server: "https://a", Authorities: []string{"x", "y"}},
		clusters.Identity{Server: "https://a", UID: "1", Authorities: []string{"y", "z"}}, ""),
	Entry("without a UID, by another name behind the same gateway", clusters.Identity{Server: "https://a/c-1", UID: "1", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://a/c-2", Authorities: []string{"x"}}, "the URLs of the servers differ"),
	Entry("without a UID, by another authority with the same name", clusters.Identity{Server: "https://127.0.0.1:6443", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://127.0.0.1:6443", Authorities: []string{"y"}}, "the CA certificates differ"),
	Entry("without a UID and an authority, by its name", clusters.Identity{Server: "https://a"}, clusters.Identity{Server: "https://a", UID: "1"}, ""),
)

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
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/embedded"
)

// recorded is the cluster in the folder's up.yml.
func (g ground) recorded() *clusters.Identity {
	GinkgoHelper()
	var settings struct{ Cluster *clusters.Identity }
	Expect(yaml.Unmarshal([]byte(g.read("kubernetes/up.yml")), &settings)).To(Succeed())
	return settings.Cluster
}

// edit replaces what matches in a file.
func (g ground) edit(name, pattern, replacement string) {
	GinkgoHelper()
	before := g.read(name)
	after := regexp.MustCompile(pattern).ReplaceAllString(before, replacement)
	Expect(after).NotTo(Equal(before), "%s holds nothing like %s", name, pattern)
	g.write(name, after)
}

// otherName is a second name of the API server, with a certificate of another authority: a proxy, and the kubeconfig of an
// administrator who uses it.
func (g ground) otherName() (*apiproxy.Proxy, string) {
	GinkgoHelper()
	proxy, err := apiproxy.NewTLS(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	current := config.Contexts[config.CurrentContext]
	config.Clusters[current.Cluster].Server = proxy.URL()
	config.Clusters[current.Cluster].CertificateAuthority = ""
	config.Clusters[current.Cluster].CertificateAuthorityData = proxy.CACertificate()
	config.Contexts["other-name"] = current
	config.CurrentContext = "other-name"
	path := g.path("other-name.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return proxy, path
}

func contextOf(kubeconfig string) string {
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

var _ = Describe("The cluster of a folder", func() {
	var g ground
	BeforeEach(func() { g = newDoer() })

	It("is recorded in up.yml by the first run", func(ctx SpecContext) {
		g.plans()
		Expect(g.recorded()).To(HaveValue(And(HaveField("Server", plane.URL()), HaveField("Context", contextOf(g.as)),
			HaveField("UID", systemUID(ctx)), HaveField("Authorities", HaveLen(1)))))
	})

	It("is named with the kubeconfig's context by the plan", func() {
		Expect(g.plans()).To(MatchRegexp(`API server +` + plane.URL() + ` \(context ` + contextOf(g.as) + `\), v1\.`))
	})

	It("is named with the kubeconfig's context by the questions of up and down", func() {
		where := "in namespace " + g.namespace + " of the cluster " + regexp.QuoteMeta(plane.URL()+" (context "+contextOf(g.as)+")")
		Expect(g.up().Out).To(gbytes.Say(`Create or update the director kubernetes ` + where + `\? \[yN\]: `))
		Expect(g.down().Out).To(gbytes.Say(`Delete the director kubernetes ` + where + `, with its disk\? \[yN\]: `))
	})

	It("is completed when an operator may get kube-system, and the one before could not", func(ctx SpecContext) {
		administrator := g.as
		g.as = newWorld(ctx).account(ctx, "guest", "")
		g.plans("--address", "10.246.0.78")
		Expect(g.recorded().UID).To(BeEmpty())
		Expect(g.recorded().Authorities).NotTo(BeEmpty())
		g.as = administrator
		Expect(g.run("", "up", "--dry-run")).To(gexec.Exit(0))
		Expect(g.recorded().UID).To(Equal(systemUID(ctx)))
	})

	It("is the one of cpi.kubeconfig in a folder without a record", func(ctx SpecContext) {
		g.plans()
		g.edit("kubernetes/up.yml", `cluster:\n(  .*?\n)+`, "")
		Expect(g.run("", "up", "--dry-run")).To(gexec.Exit(0))
		Expect(g.recorded().UID).To(Equal(systemUID(ctx)))
		g.edit("kubernetes/up.yml", `cluster:\n(  .*?\n)+`, "")
		_, g.as = g.otherName()
		session := g.run("", "up", "--dry-run")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("the servers have different names, and whether both are one cluster is not known without the right to get"))
	})
})

var _ = Describe("A kubeconfig that leads to another cluster than the folder's", Ordered, func() {
	var (
		g     ground
		other *embedded.ControlPlane
		here  string
		files map[string]string
	)
	BeforeAll(func(ctx SpecContext) {
		var err error
		other, err = embedded.NewTestControlPlane(filepath.Join(GinkgoT().TempDir(), "control-plane"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return other.Stop() })
		Expect(other.Start(ctx)).To(Succeed())
		g = newDoer()
		here = g.as
		Expect(g.up()).To(gexec.Exit(0))
		Expect(os.Remove(g.path("calls"))).To(Succeed())
		files = g.files()
		g.as = other.Kubeconfig("admin")
	})

	for _, command := range [][]string{{"up", "-y"}, {"up", "--dry-run"}, {"down", "-y"}, {"down", "-y", "--force"}} {
		It("is refused by "+strings.Join(command, " ")+" before anything is done there", func(ctx SpecContext) {
			session := g.run("", append(command, "--bosh", "./create-env")...)
			Expect(session).To(gexec.Exit(1))
			Expect(session.Err).To(gbytes.Say(`^error: the director of kubernetes is in another cluster: kubernetes/up\.yml was written for ` +
				regexp.QuoteMeta(plane.URL()+" (context "+contextOf(here)+")") + `, and your kubeconfig leads to ` +
				regexp.QuoteMeta(other.URL()+" (context "+contextOf(g.as)+")") + `; the namespace kube-system has the UID \S+ there, and \S+ here ` +
				`\(--context and --kubeconfig choose the cluster, --dir chooses another folder\)`))
			Expect(g.files()).To(Equal(files))
			Expect(g.path("calls")).NotTo(BeAnExistingFile())
			namespaces, err := other.Kubectl(ctx, "get", "namespaces", "-o", "name")
			Expect(err).NotTo(HaveOccurred())
			Expect(namespaces).NotTo(ContainSubstring(g.namespace))
		})
	}
})

// files are those of the environment's folder.
func (g ground) files() map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	Expect(filepath.WalkDir(g.path("kubernetes"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			content, readErr := os.ReadFile(path)
			found[path], err = string(content), readErr
		}
		return err
	})).To(Succeed())
	return found
}

var _ = Describe("The manifest of a director that exists", func() {
	var (
		g        ground
		manifest string
	)
	BeforeEach(func() {
		g = newDoer()
		Expect(g.up()).To(gexec.Exit(0))
		manifest = g.read("manifest.yml")
	})

	It("stays as it is when another administrator's kubeconfig names the same server differently", func() {
		_, g.as = g.otherName()
		session := g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`kubernetes/cpi\.kubeconfig: keeps the API server ` + plane.URL() + `, which works from here, too\n`))
		Expect(g.read("manifest.yml")).To(Equal(manifest), "create-env would recreate the director's VM")
	})

	It("stays as it is when the first administrator is back", func() {
		first := g.as
		_, g.as = g.otherName()
		Expect(g.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		g.as = first
		Expect(g.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(g.read("manifest.yml")).To(Equal(manifest))
	})

	It("changes when the folder has moved, which the plan says", func() {
		Expect(os.Rename(g.path("kubernetes"), g.path("moved"))).To(Succeed())
		session := g.run("", "up", "--dir", "moved", "--dry-run")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`cpi\.kubeconfig +the folder was in ` + g.path("kubernetes") + ` before; create-env recreates the director's VM`))
	})
})

var _ = Describe("The API server's name in a folder, when it does not work any more,", func() {
	var g ground
	BeforeEach(func() {
		g = newDoer()
		first := g.as
		var proxy *apiproxy.Proxy
		proxy, g.as = g.otherName()
		Expect(g.up()).To(gexec.Exit(0))
		proxy.Close()
		g.as = first
		Expect(os.Remove(g.path("calls"))).To(Succeed())
	})

	It("stops up, which says how to replace it", func() {
		before := g.read("kubernetes/cpi.kubeconfig")
		session := g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: the API server https://127\.0\.0\.1:\d+, which kubernetes/cpi\.kubeconfig names, does not work from here: .*` +
			`with --replace-server that of your kubeconfig, ` + plane.URL() + `, takes its place, and create-env recreates the director's VM`))
		Expect(g.read("kubernetes/cpi.kubeconfig")).To(Equal(before))
		Expect(g.path("calls")).NotTo(BeAnExistingFile())
	})

	It("is replaced with --replace-server, which the plan says", func() {
		session := g.run("y\n", "up", "--bosh", "./create-env", "--replace-server")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`cpi\.kubeconfig +the API server of your kubeconfig, as --replace-server says; create-env recreates the director's VM`))
		Expect(g.read("kubernetes/cpi.kubeconfig")).To(ContainSubstring(plane.URL()))
	})

	It("does not keep down from deleting the director", func() {
		Expect(g.down()).To(gexec.Exit(0))
		Expect(g.read("calls")).To(ContainSubstring("\ndelete-env\n"))
	})
})

var _ = DescribeTable("Whether a cluster is the recorded one", func(recorded, now clusters.Identity, why string) {
	if why == "" {
		Expect(recorded.Mismatch(now)).To(BeEmpty())
	} else {
		Expect(recorded.Mismatch(now)).To(HavePrefix(why))
	}
},
	Entry("by its UID, whatever its name", clusters.Identity{Server: "https://a", UID: "1", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://b", UID: "1", Authorities: []string{"y"}}, ""),
	Entry("by another UID at the same name, as after a laptop's cluster was recreated", clusters.Identity{Server: "https://a", UID: "1"},
		clusters.Identity{Server: "https://a", UID: "2"}, "the namespace kube-system has the UID 1 there, and 2 here"),
	Entry("without a UID, by name and authority", clusters.Identity{Server: "https://a", Authorities: []string{"x", "y"}},
		clusters.Identity{Server: "https://a", UID: "1", Authorities: []string{"y", "z"}}, ""),
	Entry("without a UID, at another name behind the same gateway", clusters.Identity{Server: "https://a/c-1", UID: "1", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://a/c-2", Authorities: []string{"x"}}, "the servers have different names"),
	Entry("without a UID, by another authority at the same name", clusters.Identity{Server: "https://127.0.0.1:6443", Authorities: []string{"x"}},
		clusters.Identity{Server: "https://127.0.0.1:6443", Authorities: []string{"y"}}, "the certificate authorities are different"),
	Entry("without a UID or an authority, by its name alone", clusters.Identity{Server: "https://a"}, clusters.Identity{Server: "https://a", UID: "1"}, ""),
)

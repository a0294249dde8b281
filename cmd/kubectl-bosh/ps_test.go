package main_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("kubectl bosh ps", func() {
	var env testEnv
	BeforeEach(func(ctx SpecContext) { env = newTestEnv(ctx) })

	// rows returns the cells of the table without its header.
	rows := func(table string) (rows [][]string) {
		for line := range strings.Lines(table) {
			rows = append(rows, strings.Fields(line))
		}
		return rows[1:]
	}

	It("lists instances by deployment, group and index, with their Pods, nodes, addresses, disks and Services", func(ctx SpecContext) {
		service := map[string]any{"services": []any{map[string]any{"name": "front", "ports": []any{80}}}}
		for i, agent := range []string{"c", "b", "a"} {
			env.createVM(ctx, agent, fmt.Sprintf("10.9.8.3%d", i+1), service)
			env.setMetadata(ctx, agent, "cf", "web", []string{"10", "2", "0"}[i])
		}
		env.createVM(ctx, "d", "10.9.8.40", nil)
		env.setMetadata(ctx, "d", "abc", "db", "0")
		disk := env.attachNewDisk(ctx, "d")

		table := env.mustRun("ps")
		Expect(table).To(MatchRegexp(`^DEPLOYMENT +INSTANCE +STATE +RESTARTS +POD +NODE +ADDRESSES +DISKS +SERVICES +AGE\n`))
		Expect(rows(table)).To(HaveExactElements(
			HaveExactElements("abc", "db/0", "Running", "0", "agent-d", "node-a", "10.9.8.40", "64Mi", "<none>", Not(BeEmpty())),
			HaveExactElements("cf", "web/0", "Running", "0", "agent-a", "node-a", "10.9.8.33", "<none>", "front", Not(BeEmpty())),
			ContainElement("web/2"), ContainElement("web/10")))
		Expect(rows(env.mustRun("ps", "--deployment", "abc", "-o", "wide"))).To(HaveExactElements(
			ContainElements("my-director", "id-of-d", disk, stemcellCID)))
	})

	It("shows the directors if there are several", func(ctx SpecContext) {
		for _, agent := range []string{"a", "b"} {
			env.createDynamicVM(ctx, agent, nil)
			env.setMetadata(ctx, agent, "cf", "web", "0")
		}
		_, err := controlPlane.Kubectl(ctx, "label", "--overwrite", "pod", "agent-b", "--namespace", env.namespace, manifest.LabelDirector+"=other")
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustRun("ps")).To(HavePrefix("DIRECTOR "))
	})

	It("prints instances as JSON, YAML and names", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
		var fromJSON, fromYAML struct{ Instances []instances.Instance }
		Expect(json.Unmarshal([]byte(env.mustRun("ps", "-o", "json")), &fromJSON)).To(Succeed())
		Expect(yaml.Unmarshal([]byte(env.mustRun("ps", "-o", "yaml")), &fromYAML)).To(Succeed())
		Expect(fromJSON).To(Equal(fromYAML))
		Expect(fromJSON.Instances).To(ConsistOf(And(
			HaveField("Director", "my-director"), HaveField("DirectorUUID", director.UUID), HaveField("Deployment", "cf"),
			HaveField("Group", "web"), HaveField("Index", "0"), HaveField("ID", "id-of-old"), HaveField("Pod", "agent-old"),
			HaveField("Ready", true), HaveField("Addresses", ConsistOf(address)))))
		Expect(env.mustRun("ps", "-o", "name")).To(Equal("pod/agent-old\n"))
	})

	It("filters by director and deployment", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
		Expect(env.mustRun("ps", "-o", "name", "--director", director.UUID)).NotTo(BeEmpty())
		Expect(env.mustRun("ps", "-o", "name", "--director", "my-director", "--deployment", "cf")).NotTo(BeEmpty())
		Expect(env.mustRun("ps", "-o", "name", "--director", "another")).To(BeEmpty())
		session := env.run("ps", "--deployment", "another")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Err).To(gbytes.Say("No instances found in namespace " + env.namespace))
	})

	It("shows VMs without a BOSH name, and VMs that are not ready", func(ctx SpecContext) {
		env.createDynamicVM(ctx, "old", nil)
		env.markUnready(ctx, "agent-old")
		Expect(rows(env.mustRun("ps"))).To(HaveExactElements(HaveExactElements(
			"<none>", "agent-old", "Booting", "0", "agent-old", "node-a", Not(BeEmpty()), "<none>", "<none>", Not(BeEmpty()))))
	})

	It("rejects an unknown output format", func() {
		session := env.run("ps", "-o", "html")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: --output "html" is not valid; use wide, json, yaml or name\n`))
	})
})

var _ = Describe("kubectl bosh describe", func() {
	It("shows an instance's Pods, disks, Services, PodDisruptionBudget and events", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		env.mustCall(ctx, "create_vm", "old", stemcellCID, map[string]any{
			"disruption_budget": map[string]any{"max_unavailable": 1},
			"services":          []any{map[string]any{"name": "front", "ports": []any{map[string]any{"port": 80, "target_port": 8080}}}},
		}, manualNetwork(address), []string{}, map[string]any{"bosh": map[string]any{"group": "d-cf-web"}})
		env.setMetadata(ctx, "old", "cf", "web", "0")
		disk := env.attachNewDisk(ctx, "old")
		env.createEvent(ctx, "agent-old", "Pulled", "image already\npresent")

		shown := env.mustRun("describe", "web/0")
		for _, line := range []string{
			`Instance: +web/0`, `ID: +id-of-old`, `Deployment: +cf`, `Director: +my-director ` + director.UUID, `Pod: +agent-old`,
			`State: +Running, ready`, `Addresses: +10\.9\.8\.7`, `Stemcell: +` + stemcellCID, `Container vm: +0 restarts`,
			`Processes:`, `  nats +running`, `  blobstore_nginx +Execution failed`,
			`  ` + disk + ` +64Mi +attached, class ` + env.namespace + `, attachment Pod ` + disk + `-attachment on node-a`,
			`  ` + disk + ` +1Gi +Bound, volume ` + env.namespace, `  ` + disk + `-attachment +Running +on node-a`,
			`  front +ClusterIP +10\.246\.\d+\.\d+ +80→8080/TCP`, `  d-cf-web +\d of \d healthy, \d disruptions allowed`,
			`  \S+ ago +Pulled +agent-old +image already present`,
		} {
			Expect(shown).To(MatchRegexp(`(?m)^` + line + `$`))
		}
	})

	It("shows why the state of processes is unknown", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
		session := env.runWithKubectl("echo pods/exec is\necho forbidden >&2\nexit 1\n", "describe", "web/0")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`\nProcesses:\n  <unknown>: forbidden\n`))
	})

	DescribeTable("finds an instance by", func(ctx SpecContext, name string) {
		env := newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
		Expect(env.mustRun("describe", name)).To(MatchRegexp(`Pod: +agent-old\n`))
	},
		Entry("its group and index", "web/0"),
		Entry("its group and id", "web/id-of-old"),
		Entry("its id", "id-of-old"),
		Entry("its CID", "agent-old"),
		Entry("its Pod in kubectl's notation", "pod/agent-old"),
	)

	It("lists the matches of an ambiguous name, and accepts --deployment", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
		env.createVM(ctx, "new", "10.9.8.8", nil)
		env.setMetadata(ctx, "new", "shop", "web", "0")
		session := env.run("describe", "web/0")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: instance "web/0" is ambiguous: agent-old \(deployment cf, director my-director\), agent-new \(deployment shop`))
		Expect(env.mustRun("describe", "web/0", "--deployment", "shop")).To(MatchRegexp(`Pod: +agent-new\n`))
		session = env.run("describe", "web/7")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: instance \"web/7\" not found in namespace " + env.namespace + "; `kubectl bosh ps` lists"))
	})
})

var _ = Describe("kubectl bosh ps in several namespaces", func() {
	run := func(arguments ...string) *gexec.Session {
		GinkgoHelper()
		api := memoryapi.New()
		for _, namespace := range []string{"cf", "db"} {
			api.Add("pods", namespace, manifest.VM{Name: "agent-" + namespace, Director: "d"}.Pod().Pod)
		}
		server := httptest.NewServer(api)
		DeferCleanup(server.Close)
		command := exec.Command(program, append([]string{"ps", "--server", server.URL}, arguments...)...) //nolint:gosec // test
		session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session).Should(gexec.Exit(0))
		return session
	}

	It("lists the instances of all namespaces with -A", func() {
		Expect(string(run("-A").Out.Contents())).To(MatchRegexp(`^NAMESPACE +DEPLOYMENT .*\ncf +.* agent-cf .*\ndb +.* agent-db .*\n$`))
	})

	It("names the namespaces with instances if the selected one has none", func() {
		Expect(run("-n", "bosh").Err).To(gbytes.Say(`No instances found in namespace bosh\. These namespaces have instances: cf, db\. Select one with -n, or use -A\.`))
	})
})

var _ = It("kubectl bosh names the kubeconfig that does not exist, and the remedy", func() {
	command := exec.Command(program, "ps")
	command.Env = []string{"KUBECONFIG=/nope/config"}
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	Eventually(session).Should(gexec.Exit(1))
	Expect(session.Err).To(gbytes.Say(`^error: no kubeconfig found at /nope/config; set --kubeconfig, or KUBECONFIG\n`))
})

var _ = DescribeTable("kubectl bosh shows no secret of a kubeconfig that it cannot use:", func(cluster, message string) {
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(os.WriteFile(kubeconfig, []byte("{current-context: it, contexts: [{name: it, context: {cluster: other}}],\n"+
		"clusters: [{name: other, cluster: {server: 'https://10.0.0.2'}}, {name: k, cluster: {"+cluster+"}}]}"), 0o600)).To(Succeed())
	session := startCommand(exec.Command(program, "ps", "--kubeconfig", kubeconfig, "--cluster", "k"))
	Eventually(session).Should(gexec.Exit(1))
	Expect(string(session.Err.Contents())).To(And(ContainSubstring(kubeconfig), ContainSubstring(`clusters["k"].cluster.`+message), Not(ContainSubstring("s3cret"))))
},
	Entry("in the server", "server: 'https://user:s3cret%zz@10.0.0.1'", "server is not a valid URL"),
	Entry("in the proxy", "server: 'https://10.0.0.1', proxy-url: 'ftp://user:s3cret@proxy.test'", "proxy-url must be a URL"),
	Entry("in the proxy, with % in the password", "server: 'https://10.0.0.1', proxy-url: 'http://user:%s3cret@proxy.test'", "proxy-url must be a URL"),
)

var _ = It("kubectl bosh names the context and the kubeconfig of an API server that does not respond", func() {
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: lab, contexts: [{name: lab, context: {cluster: c}}],
		clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`), 0o600)).To(Succeed())
	session := startCommand(exec.Command(program, "ps", "--kubeconfig", kubeconfig))
	Eventually(session).Should(gexec.Exit(1))
	Expect(session.Err).To(gbytes.Say(`^error: cannot reach the API server of context "lab": .*; check the server in ` + kubeconfig + `, and the network\n`))
})

package main_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// lookup returns the value at the path. In lists, it selects the element with the name.
func lookup(value any, path ...string) any {
	GinkgoHelper()
	for _, key := range path {
		switch container := value.(type) {
		case map[string]any:
			Expect(container).To(HaveKey(key), "%q", path)
			value = container[key]
		case []any:
			value = nil
			for _, element := range container {
				if element.(map[string]any)["name"] == key {
					value = element
				}
			}
			Expect(value).NotTo(BeNil(), "%q", path)
		}
	}
	return value
}

var _ = Describe("kubectl bosh up --dry-run", func() {
	var ws workspace
	BeforeEach(func() { ws = newWorkspace() })

	It("plans a Service for the director if the network plugin does not assign requested addresses", func(ctx SpecContext) {
		createNetworkPlugin(ctx, "kube-flannel-ds")
		createDNSService(ctx)
		output := ws.planOutput()
		Expect(output).To(MatchRegexp(`network plugin +flannel \(DaemonSet kube-flannel-ds\), does not assign requested addresses\n`))
		Expect(output).To(MatchRegexp(`Service ranges +10\.246\.0\.0/16 \(ServiceCIDR kubernetes\)\n`))
		Expect(output).To(MatchRegexp(`in-cluster API +https://10\.246\.0\.1:443\n`))
		Expect(output).To(MatchRegexp(`permissions +sufficient\n`))
		Expect(output).To(MatchRegexp(`network +service: flannel does not assign requested addresses\n`))

		manifest := ws.interpolateManifest(ctx)
		Expect(lookup(manifest, "networks", "default", "type")).To(Equal("dynamic"))
		service := lookup(manifest, "resource_pools", "vms", "cloud_properties", "services", "bosh-director")
		Expect(service).To(And(HaveKeyWithValue("cluster_ip", "10.246.0.60"), HaveKeyWithValue("keep", true)))
		Expect(lookup(manifest, "cloud_provider", "properties", "kubernetes")).To(Equal(map[string]any{"kubeconfig": "of create-env", "namespace": ws.namespace}))
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "kubernetes")).To(Equal(map[string]any{"namespace": ws.namespace}))
		Expect(lookup(manifest, "releases", "bosh-kubernetes-cpi", "url")).To(Equal("file://" + ws.path("cpi.tgz")))

		config := ws.interpolate(ctx, "kubernetes/cloud-config.yml", "--ops-file", "kubernetes/ops/dynamic-network.yml",
			"--vars-file", "kubernetes/cloud-config-vars.yml", "--var-errs")
		Expect(lookup(config, "networks", "default", "type")).To(Equal("dynamic"))
	})

	It("skips addresses of existing Services", func(ctx SpecContext) {
		createServiceWithAddress(ctx, "10.246.0.60")
		ws.planOutput()
		Expect(ws.vars()).To(HaveKeyWithValue("internal_ip", "10.246.0.61"))
	})

	It("uses the annotation that the network plugin reads", func(ctx SpecContext) {
		createNetworkPlugin(ctx, "kube-ovn-cni")
		ws.planOutput("--range", "10.16.0.0/16")
		manifest := ws.interpolateManifest(ctx)
		annotations := ConsistOf(map[string]any{"name": "ovn.kubernetes.io/ip_address", "value": `{{join .IPs ","}}`})
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "kubernetes", "network", "address_annotations")).To(annotations)
		Expect(lookup(manifest, "cloud_provider", "properties", "kubernetes", "network", "address_annotations")).To(annotations)
	})

	It("reports unknown facts", func(ctx SpecContext) {
		ws.kubeconfig = newTestEnv(ctx).createAccount(ctx, "guest", "")
		session := ws.run("", append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--address", "10.246.0.99", "--dry-run")...)
		Expect(session).To(gexec.Exit(0))
		output := string(session.Out.Contents())
		Expect(output).To(MatchRegexp(`permissions +missing: create namespaces, `))
		Expect(output).To(MatchRegexp(`network plugin +unknown: .*forbidden`))
		Expect(output).To(MatchRegexp(`Service ranges +unknown: .*forbidden`))
		Expect(output).To(MatchRegexp(`network +service: the network plugin is unknown`))
	})

	It("does not change the cluster, like up without confirmation", func(ctx SpecContext) {
		ws.planOutput()
		_, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
		session := ws.run("n\n", "up")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: not confirmed: the cluster was not changed`))
		_, err = cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})

	It("keeps and reports files edited by the operator", func(ctx SpecContext) {
		ws.planOutput()
		ws.write("kubernetes/vars.yml", ws.read("kubernetes/vars.yml")+"mine: 1\n")
		ws.write("kubernetes/ops/cpi.yml", ws.read("kubernetes/ops/cpi.yml")+"# mine\n")
		previous := ws.read("kubernetes/vars.yml")
		createNetworkPlugin(ctx, "kube-ovn-cni")
		session := ws.run("", "up", "--dry-run")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`all +as recorded in kubernetes/up\.yml and kubernetes/vars\.yml\n`))
		Expect(session.Out).To(gbytes.Say(`up\.yml, vars\.yml, .*permissions\.yaml: unchanged\n`))
		Expect(session.Out).To(gbytes.Say(`ops/cpi\.yml: kept, because it was edited`))
		Expect(ws.read("kubernetes/vars.yml")).To(Equal(previous))
		Expect(ws.read("kubernetes/ops/cpi.yml")).To(HaveSuffix("# mine\n"))
	})

	It("applies new values, and keeps the others", func(ctx SpecContext) {
		ws.planOutput()
		ws.write("more.yml", "[]")
		ws.write("newer.tgz", "")
		session := ws.run("", "up", "--dry-run", "--stemcell", "newer.tgz", "--var", "mine={a: 1}", "--ops-file", "more.yml")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`mine +changed by a flag\n`))
		Expect(ws.vars()).To(And(HaveKeyWithValue("stemcell_url", "file://"+ws.path("newer.tgz")), HaveKeyWithValue("internal_ip", "10.246.0.60"),
			HaveKeyWithValue("mine", HaveKeyWithValue("a", BeNumerically("==", 1)))))
		Expect(ws.read("kubernetes/up.yml")).To(ContainSubstring("- " + filepath.Join(ws.dir, "more.yml")))
	})

	It("writes files that only their owner can read", func() {
		ws.planOutput()
		info, err := os.Stat(ws.path("kubernetes/vars.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})

	It("completes the files after an interrupted run", func() {
		obstacle := ws.path("kubernetes/cloud-config.yml.new/file")
		Expect(os.MkdirAll(obstacle, 0o755)).To(Succeed())
		arguments := append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--dry-run")
		Expect(ws.run("", arguments...)).To(gexec.Exit(1))
		Expect(os.RemoveAll(filepath.Dir(obstacle))).To(Succeed())
		Expect(ws.run("", arguments...)).To(gexec.Exit(0))
		Expect(ws.vars()).To(HaveKeyWithValue("namespace", ws.namespace))
		Expect(ws.path("kubernetes/cloud-config.yml")).To(BeARegularFile())
	})

	It("rejects a namespace with the director of another directory", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		_, err := cluster.CoreV1().Pods(ws.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-other", Labels: map[string]string{manifest.LabelManagedBy: manifest.ManagedBy, "bosh-director": "first"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "vm", Image: "none"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		session := ws.run("", append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--dry-run")...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: namespace \S+ has the VM agent-other of director first; create another director in a namespace of its own`))
	})

	It("ignores Pods of an interrupted deep check in the namespace", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		ws.createProbe(ctx)
		Expect(ws.run("", append(append([]string{}, firstRunArgs...), "--namespace", ws.namespace, "--dry-run")...)).To(gexec.Exit(0))
	})

	DescribeTable("rejects", func(message string, args ...string) {
		session := ws.run("", append([]string{"up", "--dry-run"}, args...)...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: " + message))
		Expect(ws.path("kubernetes")).NotTo(BeADirectory())
	},
		Entry("a director without a release", "--release and --stemcell are required", "--bosh-deployment", "bosh-deployment"),
		Entry("a director without a manifest", "--bosh-deployment or --manifest is required", "--release", "cpi.tgz", "--stemcell", "stemcell.tgz"),
		Entry("two manifests", "--bosh-deployment and --manifest are mutually exclusive", "--bosh-deployment", "a", "--manifest", "b"),
		Entry("a download without its checksum", "--release is a URL.*--release-sha1", "--release", "https://example.com/a", "--stemcell", "b"),
		Entry("an unknown network", `--network "vpn" is not valid; use one of static, service`, "--network", "vpn"),
		Entry("an invalid address", `--address "here" is not a valid IP address`, "--address", "here"),
		Entry("an address outside of the range", `--address 10\.2\.0\.1 is not in the reserved range`,
			"--bosh-deployment", "bosh-deployment", "--release", "cpi.tgz", "--stemcell", "stemcell.tgz", "--range", "10.16.0.0/16", "--address", "10.2.0.1"),
		Entry("a release that does not exist", "--release: stat nope.tgz: no such file", "--release", "nope.tgz"),
		Entry("a directory without a manifest", "--bosh-deployment: stat .*/nope/bosh.yml: no such file", "--bosh-deployment", "nope"),
		Entry("an ops file that does not exist", "--ops-file: smal.yml is neither a file nor one of the ops files that this program contains", "--ops-file", "smal.yml"),
		Entry("the operating system of a stemcell", "--stemcell: ubuntu-noble does not exist; .* or an image with its registry, for example ghcr.io/",
			"--stemcell", "ubuntu-noble"),
		Entry("a directory as an ops file", "--ops-file: bosh-deployment is not a file", "--ops-file", "bosh-deployment"),
		Entry("an invalid namespace", `namespace "Bad_NS" is not valid: .*; set --namespace`, "--namespace", "Bad_NS"),
		Entry("a variable without a value", `--var number 1 is not in the form name=value`, "--var", "mine"),
	)

	It("rejects another network for an existing director", func() {
		ws.planOutput()
		session := ws.run("", "up", "--dry-run", "--network", "static")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: the files in directory kubernetes are for --network "service", not "static", and create-env has not used them yet; ` +
			"run `kubectl bosh down --dir kubernetes`, delete the directory, and run up again with all flags"))
	})
})

var _ = Describe("kubectl bosh up on a cluster with Calico", Ordered, func() {
	var ws workspace
	BeforeAll(func(ctx SpecContext) { createCalico(ctx) })
	BeforeEach(func() { ws = newWorkspace() })

	It("plans an address of the reserved range for the director", func(ctx SpecContext) {
		createDNSService(ctx)
		output := ws.planOutput()
		Expect(output).To(MatchRegexp(`network plugin +Calico \(API group crd\.projectcalico\.org\), assigns requested addresses\n`))
		Expect(output).To(MatchRegexp(`network +static: Calico assigns requested addresses, and IPPool bosh reserves 10\.1\.128\.0/17\n`))

		manifest := ws.interpolateManifest(ctx)
		Expect(lookup(manifest, "networks", "default", "type")).To(Equal("manual"))
		Expect(lookup(manifest, "instance_groups", "bosh", "networks", "default", "static_ips")).To(ConsistOf("10.1.128.6"))
		Expect(lookup(manifest, "resource_pools", "vms", "cloud_properties")).NotTo(HaveKey("services"))
		Expect(lookup(manifest, "resource_pools", "vms", "cloud_properties")).To(HaveKeyWithValue("service_account", "bosh-cpi"))

		config := ws.interpolate(ctx, "kubernetes/cloud-config.yml", "--vars-file", "kubernetes/cloud-config-vars.yml", "--var-errs", "--var-errs-unused")
		subnet := lookup(config, "networks", "default", "subnets").([]any)[0]
		Expect(subnet).To(And(HaveKeyWithValue("range", "10.1.128.0/17"), HaveKeyWithValue("gateway", "10.1.128.1"),
			HaveKeyWithValue("reserved", ConsistOf("10.1.128.1-10.1.128.20", "10.1.128.6")), HaveKeyWithValue("dns", ConsistOf("10.246.0.10"))))
	})

	It("uses the flags for the network, the address and the credentials", func(ctx SpecContext) {
		output := ws.planOutput("--network", "service", "--address", "10.246.7.7", "--credentials", "kubeconfig")
		Expect(output).To(MatchRegexp(`network +service: set by --network\n`))
		manifest := ws.interpolateManifest(ctx)
		Expect(lookup(manifest, "resource_pools", "vms", "cloud_properties", "services", "bosh-director", "cluster_ip")).To(Equal("10.246.7.7"))
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "kubernetes", "kubeconfig")).To(Equal("of the director"))
	})

	It("does not use a range that is not reserved", func(ctx SpecContext) {
		_, err := controlPlane.Kubectl(ctx, "delete", "ippools.crd.projectcalico.org", "bosh")
		Expect(err).NotTo(HaveOccurred())
		Expect(ws.planOutput()).To(MatchRegexp(`network +service: Calico assigns requested addresses, but without a reserved range`))
		ws = newWorkspace()
		session := ws.run("", append(append([]string{}, firstRunArgs...), "--network", "static", "--dry-run")...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: --network static requires a reserved range.* --range`))
		Expect(ws.path("kubernetes")).NotTo(BeADirectory())
	})
})

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
)

// get returns what is at the keys; an element of a list by its name.
func get(from any, path ...string) any {
	GinkgoHelper()
	for _, key := range path {
		switch value := from.(type) {
		case map[string]any:
			Expect(value).To(HaveKey(key), "%q", path)
			from = value[key]
		case []any:
			from = nil
			for _, each := range value {
				if each.(map[string]any)["name"] == key {
					from = each
				}
			}
			Expect(from).NotTo(BeNil(), "%q", path)
		}
	}
	return from
}

var _ = Describe("kubectl bosh up, before it changes anything,", func() {
	var g ground
	BeforeEach(func() { g = newGround() })

	It("puts a director behind a Service where the network plugin gives no address on request", func(ctx SpecContext) {
		plugin(ctx, "kube-flannel-ds")
		nameServers(ctx)
		said := g.plans()
		Expect(said).To(MatchRegexp(`network plugin +flannel \(DaemonSet kube-flannel-ds\), which gives no address on request\n`))
		Expect(said).To(MatchRegexp(`Service addresses +10\.246\.0\.0/16 \(ServiceCIDR kubernetes\)\n`))
		Expect(said).To(MatchRegexp(`API for Pods +https://10\.246\.0\.1:443\n`))
		Expect(said).To(MatchRegexp(`rights +all that this takes\n`))
		Expect(said).To(MatchRegexp(`network +service: flannel gives no address on request\n`))

		manifest := g.interpolated(ctx)
		Expect(get(manifest, "networks", "default", "type")).To(Equal("dynamic"))
		service := get(manifest, "resource_pools", "vms", "cloud_properties", "services", "bosh-director")
		Expect(service).To(And(HaveKeyWithValue("cluster_ip", "10.246.0.60"), HaveKeyWithValue("keep", true)))
		Expect(get(manifest, "cloud_provider", "properties", "kubernetes")).To(Equal(map[string]any{"kubeconfig": "of create-env", "namespace": g.namespace}))
		Expect(get(manifest, "instance_groups", "bosh", "properties", "kubernetes")).To(Equal(map[string]any{"namespace": g.namespace}))
		Expect(get(manifest, "releases", "bosh-kubernetes-cpi", "url")).To(Equal("file://" + g.path("cpi.tgz")))

		config := g.interpolate(ctx, "kubernetes/cloud-config.yml", "--ops-file", "kubernetes/ops/dynamic-network.yml",
			"--vars-file", "kubernetes/cloud-config-vars.yml", "--var-errs")
		Expect(get(config, "networks", "default", "type")).To(Equal("dynamic"))
	})

	It("leaves addresses that Services have to them", func(ctx SpecContext) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: "10.246.0.60", Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err := cluster.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(cluster.CoreV1().Services("default").Delete(ctx, "other", metav1.DeleteOptions{})).To(Succeed())
		})
		g.plans()
		Expect(g.vars()).To(HaveKeyWithValue("internal_ip", "10.246.0.61"))
	})

	It("asks for addresses by the annotation that the network plugin reads", func(ctx SpecContext) {
		plugin(ctx, "kube-ovn-cni")
		g.plans("--range", "10.16.0.0/16")
		manifest := g.interpolated(ctx)
		asked := ConsistOf(map[string]any{"name": "ovn.kubernetes.io/ip_address", "value": `{{join .IPs ","}}`})
		Expect(get(manifest, "instance_groups", "bosh", "properties", "network", "address_annotations")).To(asked)
		Expect(get(manifest, "cloud_provider", "properties", "network", "address_annotations")).To(asked)
	})

	It("says what could not be found out, and takes the API server's word for the Service range", func(ctx SpecContext) {
		w := newWorld(ctx)
		g.as = w.account(ctx, "guest", "")
		_, err := plane.Kubectl(ctx, "create", "rolebinding", "guest-"+w.namespace, "--namespace", "default", "--clusterrole=edit", "--serviceaccount="+w.namespace+":guest")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			_, err := plane.Kubectl(ctx, "delete", "rolebinding", "guest-"+w.namespace, "--namespace", "default")
			Expect(err).NotTo(HaveOccurred())
		})
		var said string
		Eventually(func() string {
			session := g.run("", append(append([]string{}, first...), "--namespace", g.namespace, "--dry-run")...)
			said = string(session.Out.Contents())
			return said
		}).WithContext(ctx).Should(MatchRegexp(`Service addresses +10\.246\.0\.0/16 \(told by the API server\)\n`))
		Expect(said).To(MatchRegexp(`rights +missing: create namespaces, `))
		Expect(said).To(MatchRegexp(`network plugin +not known: .*forbidden`))
		Expect(said).To(MatchRegexp(`network +service: which network plugin there is is not known`))
	})

	It("changes nothing in the cluster, also when it is not confirmed", func(ctx SpecContext) {
		g.plans()
		_, err := cluster.CoreV1().Namespaces().Get(ctx, g.namespace, metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
		session := g.run("n\n", "up")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: not confirmed: nothing was changed in the cluster`))
		_, err = cluster.CoreV1().Namespaces().Get(ctx, g.namespace, metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})

	It("keeps what the operator has changed, and says so", func(ctx SpecContext) {
		g.plans()
		g.write("kubernetes/vars.yml", g.read("kubernetes/vars.yml")+"mine: 1\n")
		g.write("kubernetes/ops/cpi.yml", g.read("kubernetes/ops/cpi.yml")+"# mine\n")
		before := g.read("kubernetes/vars.yml")
		plugin(ctx, "kube-ovn-cni")
		session := g.run("", "up", "--dry-run")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`all +as kubernetes/up\.yml and kubernetes/vars\.yml have it\n`))
		Expect(session.Out).To(gbytes.Say(`ops/cpi\.yml +kept as it is, other than this program would write it`))
		Expect(session.Out).To(gbytes.Say(`rights\.yaml +as it was\n`))
		Expect(g.read("kubernetes/vars.yml")).To(Equal(before))
		Expect(g.read("kubernetes/ops/cpi.yml")).To(HaveSuffix("# mine\n"))
	})

	It("takes what is given anew, and leaves the rest", func(ctx SpecContext) {
		g.plans()
		g.write("more.yml", "[]")
		session := g.run("", "up", "--dry-run", "--stemcell", "newer.tgz", "--var", "mine={a: 1}", "--ops-file", "more.yml")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`mine +as it is given now\n`))
		Expect(g.vars()).To(And(HaveKeyWithValue("stemcell_url", "file://"+g.path("newer.tgz")), HaveKeyWithValue("internal_ip", "10.246.0.60"),
			HaveKeyWithValue("mine", HaveKeyWithValue("a", BeNumerically("==", 1)))))
		Expect(g.read("kubernetes/up.yml")).To(ContainSubstring("- " + filepath.Join(g.folder, "more.yml")))
	})

	It("keeps its files to their owner", func() {
		g.plans()
		info, err := os.Stat(g.path("kubernetes/vars.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})

	DescribeTable("refuses", func(message string, args ...string) {
		session := g.run("", append([]string{"up", "--dry-run"}, args...)...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: " + message))
		Expect(g.path("kubernetes")).NotTo(BeADirectory())
	},
		Entry("a director without a release", "give --release .* and --stemcell", "--bosh-deployment", "bosh-deployment"),
		Entry("a director without a manifest", "which manifest. Give --bosh-deployment", "--release", "a", "--stemcell", "b"),
		Entry("two manifests", "--bosh-deployment and --manifest are both given", "--bosh-deployment", "a", "--manifest", "b"),
		Entry("a download without its checksum", "--release is downloaded.*--release-sha1", "--release", "https://example.com/a", "--stemcell", "b"),
		Entry("an unknown network", `--network "vpn" is none of static, service`, "--network", "vpn"),
		Entry("an address that is none", `--address "here" is no address`, "--address", "here"),
		Entry("an address out of the range", `--address 10\.2\.0\.1 is not in the range`,
			"--bosh-deployment", "bosh-deployment", "--release", "a", "--stemcell", "b", "--range", "10.16.0.0/16", "--address", "10.2.0.1"),
		Entry("a variable without a value", `--var number 1 is not NAME=VALUE`, "--var", "mine"),
	)

	It("refuses another network for a director that is there", func() {
		g.plans()
		session := g.run("", "up", "--dry-run", "--network", "static")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: kubernetes has a director with --network service, and not static: take another folder`))
	})
})

var _ = Describe("kubectl bosh up on a cluster with Calico", Ordered, func() {
	var g ground
	BeforeAll(func(ctx SpecContext) { calico(ctx) })
	BeforeEach(func() { g = newGround() })

	It("puts a director at an address of the range that Calico keeps for those that ask", func(ctx SpecContext) {
		nameServers(ctx)
		said := g.plans()
		Expect(said).To(MatchRegexp(`network plugin +Calico \(API group crd\.projectcalico\.org\), which gives addresses on request\n`))
		Expect(said).To(MatchRegexp(`network +static: Calico gives addresses on request, and IPPool bosh keeps 10\.1\.128\.0/17 for that\n`))

		manifest := g.interpolated(ctx)
		Expect(get(manifest, "networks", "default", "type")).To(Equal("manual"))
		Expect(get(manifest, "instance_groups", "bosh", "networks", "default", "static_ips")).To(ConsistOf("10.1.128.6"))
		Expect(get(manifest, "resource_pools", "vms", "cloud_properties")).NotTo(HaveKey("services"))
		Expect(get(manifest, "resource_pools", "vms", "cloud_properties")).To(HaveKeyWithValue("service_account", "bosh-cpi"))

		config := g.interpolate(ctx, "kubernetes/cloud-config.yml", "--vars-file", "kubernetes/cloud-config-vars.yml", "--var-errs", "--var-errs-unused")
		subnet := get(config, "networks", "default", "subnets").([]any)[0]
		Expect(subnet).To(And(HaveKeyWithValue("range", "10.1.128.0/17"), HaveKeyWithValue("gateway", "10.1.128.1"),
			HaveKeyWithValue("reserved", ConsistOf("10.1.128.1-10.1.128.20", "10.1.128.6")), HaveKeyWithValue("dns", ConsistOf("10.246.0.10"))))
	})

	It("does as it is told: a Service although there is a range, other credentials, another address", func(ctx SpecContext) {
		said := g.plans("--network", "service", "--address", "10.246.7.7", "--credentials", "kubeconfig")
		Expect(said).To(MatchRegexp(`network +service: as --network says\n`))
		manifest := g.interpolated(ctx)
		Expect(get(manifest, "resource_pools", "vms", "cloud_properties", "services", "bosh-director", "cluster_ip")).To(Equal("10.246.7.7"))
		Expect(get(manifest, "instance_groups", "bosh", "properties", "kubernetes", "kubeconfig")).To(Equal("of the director"))
	})

	It("does not take an address of a range from which Calico gives any Pod one", func(ctx SpecContext) {
		_, err := plane.Kubectl(ctx, "delete", "ippools.crd.projectcalico.org", "bosh")
		Expect(err).NotTo(HaveOccurred())
		Expect(g.plans()).To(MatchRegexp(`network +service: Calico gives addresses on request, but no range of them is kept`))
		g = newGround()
		session := g.run("", append(append([]string{}, first...), "--network", "static", "--dry-run")...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: --network static takes a range .* --range`))
		Expect(g.path("kubernetes")).NotTo(BeADirectory())
	})
})

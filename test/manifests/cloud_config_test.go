package manifests

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	caller "bosh-kubernetes-cpi/test/harness/director"
)

const longTest = 5 * time.Minute

// cloudConfigNetworks are the networks of a cloud config. zonesOption can be combined with each of them.
var cloudConfigNetworks = []option{
	{name: "a reserved range", vars: []string{"network_range", "network_gateway", "network_reserved", "cluster_dns"}},
	{name: "dynamic-network.yml", ops: []string{manifestPath("dynamic-network.yml")}, vars: []string{"cluster_dns"}},
}

var zonesOption = option{name: "zones.yml", ops: []string{manifestPath("zones.yml")}, vars: []string{"zone1", "zone2", "zone3"}}

// cloudConfig returns a cloud config with these options.
func cloudConfig(name string, options ...option) template {
	config := template{base: manifestPath(name)}
	for _, o := range options {
		config.ops = append(config.ops, o.ops...)
		config.vars = append(config.vars, o.vars...)
	}
	return config
}

// usedByCF are the names in a cloud config that cf-deployment v58.0.0 and its ops files use. Sources: cf-deployment.yml,
// texts/on-cloud-configs.md and operations in cf-deployment.
var usedByCF = map[string][]string{
	"azs":        {"z1", "z2", "z3"},
	"vm_types":   {"minimal", "small", "medium", "small-highmem", "sharedcpu", "default"},
	"disk_types": {"5GB", "10GB", "100GB"},
	"networks":   {"default"},
	"vm_extensions": {"50GB_ephemeral_disk", "100GB_ephemeral_disk", "cf-router-network-properties", "cf-tcp-router-network-properties",
		"diego-ssh-proxy-network-properties", "iso-seg-cf-router-network-properties"},
}

var _ = Describe("A cloud config", func() {
	AfterEach(emptyNamespace)

	for _, name := range []string{"cloud-config.yml", "cloud-config-cf.yml"} {
		for _, network := range cloudConfigNetworks {
			for _, options := range [][]option{{network}, {network, zonesOption}} {
				names := []string{name}
				for _, o := range options {
					names = append(names, o.name)
				}
				It("defines VMs and disks that the CPI can create: "+strings.Join(names, ", "), func(ctx context.Context) {
					config := cloudConfig(name, options...).interpolate(ctx)
					expectConsistent(config)
					for _, kind := range []string{"azs", "vm_types", "vm_extensions"} {
						for _, element := range lookup(config, kind).([]any) {
							expectProperties(element.(map[string]any)["cloud_properties"], "vm")
						}
					}
					for _, diskType := range lookup(config, "disk_types").([]any) {
						expectProperties(diskType.(map[string]any)["cloud_properties"], "disk")
					}
					expectVMs(ctx, config)
				}, NodeTimeout(longTest))
			}
		}
	}

	// kind's own Pods request almost one CPU.
	It("lets all compilation VMs run with a small director on a kind cluster with 2 CPUs and 8 GB", func(ctx context.Context) {
		small := option{ops: []string{manifestPath("small.yml")}}
		director := lookup(directorManifest(networkOptions[1], small).interpolate(ctx), "resource_pools", "vms", "cloud_properties", "resources", "requests")
		config := cloudConfig("cloud-config.yml", cloudConfigNetworks[1]).interpolate(ctx)
		worker := lookup(config, "vm_types", "compilation", "cloud_properties", "resources", "requests")
		for name, available := range map[string]string{"cpu": "1", "memory": "7Gi"} {
			total := resource.MustParse(lookup(director, name).(string))
			for range int(lookup(config, "compilation", "workers").(float64)) {
				total.Add(resource.MustParse(lookup(worker, name).(string)))
			}
			Expect(total.Cmp(resource.MustParse(available))).To(BeNumerically("<", 0), "%s: %s", name, &total)
		}
	})

	It("defines every name that cf-deployment uses", func(ctx context.Context) {
		config := cloudConfig("cloud-config-cf.yml", cloudConfigNetworks[0]).interpolate(ctx)
		for kind, names := range usedByCF {
			Expect(namesOf(config, kind)).To(ContainElements(names), kind)
		}
	})
})

// cfManifest has the names in cf-deployment v58.0.0 that the ops files for it use.
const cfManifest = `
instance_groups:
- name: diego-cell
  jobs:
  - {name: garden, properties: {garden: {containerd_mode: true}}}
  - {name: rep, properties: {diego: {executor: {instance_identity_key: key}}}}
- name: diego-api
  jobs: [{name: bbs}, {name: locket}]
- name: api
  jobs: [{name: file_server}]
`

var _ = Describe("cf-deployment.yml", func() {
	It("sets the size of Diego cells, and keeps jobs from setting kernel parameters", func(ctx context.Context) {
		base := filepath.Join(GinkgoT().TempDir(), "cf.yml")
		Expect(os.WriteFile(base, []byte(cfManifest), 0o600)).To(Succeed())
		manifest := template{base: base, ops: []string{manifestPath("cf-deployment.yml"), manifestPath("cf-no-apparmor.yml")},
			vars: []string{"cell_memory_mb", "cell_disk_mb"}}.interpolate(ctx)
		cell := lookup(manifest, "instance_groups", "diego-cell", "jobs")
		Expect(lookup(cell, "rep", "properties", "diego", "executor")).To(And(
			HaveKeyWithValue("memory_capacity_mb", BeEquivalentTo(28000)), HaveKeyWithValue("disk_capacity_mb", BeEquivalentTo(80000))))
		Expect(lookup(cell, "rep", "properties", "set_kernel_parameters")).To(BeFalse())
		Expect(lookup(cell, "garden", "properties", "garden", "apparmor_profile")).To(BeEmpty())
		for job, group := range map[string]string{"bbs": "diego-api", "locket": "diego-api", "file_server": "api"} {
			Expect(lookup(manifest, "instance_groups", group, "jobs", job, "properties", "set_kernel_parameters")).To(BeFalse())
		}
	})
})

// expectConsistent expects that the cloud config defines all names that it uses.
func expectConsistent(config map[string]any) {
	GinkgoHelper()
	azs := namesOf(config, "azs")
	for kind, key := range map[string]string{"vm_types": "vm_type", "networks": "network", "azs": "az"} {
		Expect(namesOf(config, kind)).To(ContainElement(lookup(config, "compilation", key)))
	}
	for _, subnet := range lookup(config, "networks", "default", "subnets").([]any) {
		for _, az := range lookup(subnet, "azs").([]any) {
			Expect(azs).To(ContainElement(az))
		}
	}
}

// namesOf returns the names of the elements of one kind.
func namesOf(config map[string]any, kind string) []string {
	GinkgoHelper()
	var names []string
	for _, element := range lookup(config, kind).([]any) {
		names = append(names, nameOf(element))
	}
	return names
}

// expectVMs creates a VM of each VM type, a VM of the first VM type with each extension, and a disk of each disk type. The CPI has the
// configuration of the director's manifest.
func expectVMs(ctx context.Context, config map[string]any) {
	GinkgoHelper()
	group := lookup(directorManifest(networkOptions[0]).interpolate(ctx), "instance_groups", "bosh", "properties").(map[string]any)
	lookup(group, "kubernetes").(map[string]any)["timeouts"] = map[string]any{"create_vm": "1m"}
	boshDirector := caller.Director{CPI: program, Config: mustRender(ctx, group).configFile()}
	subnet := lookup(config, "networks", "default", "subnets").([]any)[0]
	azs, types := lookup(config, "azs").([]any), lookup(config, "vm_types").([]any)
	requested := 0
	createVM := func(types ...any) {
		properties := cloudProperties(append([]any{azs[requested%len(azs)]}, types...)...)
		requested++
		agentID := fmt.Sprintf("vm-%d", requested)
		response, err := boshDirector.Call(ctx, "create_vm", agentID, "registry.example.com/stemcell@sha256:"+strings.Repeat("0", 64),
			properties, networkSettings(config, subnet, requested), []string{}, map[string]any{"bosh": map[string]any{"group": "web"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil(), "%v: %s", properties, response.Stderr)
		pod, err := cluster.CoreV1().Pods(namespace).Get(ctx, "agent-"+agentID, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		expectVMPod(pod, properties)
		// The nodes do not have the capacity for all VMs at the same time.
		Expect(cluster.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))).To(Succeed())
	}
	for _, vmType := range types {
		createVM(vmType)
	}
	for _, extension := range lookup(config, "vm_extensions").([]any) {
		createVM(types[0], extension)
	}
	for _, diskType := range lookup(config, "disk_types").([]any) {
		response, err := boshDirector.Call(ctx, "create_disk", lookup(diskType, "disk_size"), cloudProperties(diskType), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(BeNil(), "%v: %s", diskType, response.Stderr)
	}
}

// cloudProperties merges the cloud_properties of these elements like the director: it merges only top-level keys, and later elements
// take precedence. The director's order is AZ, VM type, extensions.
func cloudProperties(elements ...any) map[string]any {
	merged := map[string]any{}
	for _, element := range elements {
		properties, _ := element.(map[string]any)["cloud_properties"].(map[string]any)
		maps.Copy(merged, properties)
	}
	return merged
}

// networkSettings returns the networks that a director sends for the nth VM of a deployment.
func networkSettings(config map[string]any, subnet any, n int) map[string]any {
	GinkgoHelper()
	network := map[string]any{
		"type": lookup(config, "networks", "default", "type"), "dns": lookup(subnet, "dns"), "default": []string{"dns", "gateway"},
		"cloud_properties": map[string]any{}, "prefix": "32",
	}
	if network["type"] == "manual" {
		network["ip"], network["netmask"], network["gateway"] = fmt.Sprintf("10.1.128.%d", 20+n), "255.255.128.0", lookup(subnet, "gateway")
	}
	return map[string]any{"default": network}
}

// expectVMPod expects that the VM Pod has the properties.
func expectVMPod(pod *corev1.Pod, properties map[string]any) {
	GinkgoHelper()
	if zone, ok := properties["zone"]; ok {
		Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue("topology.kubernetes.io/zone", zone))
	}
	requests := pod.Spec.Containers[0].Resources.Requests
	Expect(requests.Cpu().IsZero()).To(BeFalse())
	Expect(requests.StorageEphemeral().Value()).To(BeNumerically("==", properties["ephemeral_disk"].(float64)*(1<<20)))
	services, _ := properties["services"].([]any)
	for _, service := range services {
		Expect(pod.Labels).To(HaveKeyWithValue("service.bosh.cloudfoundry.org/"+nameOf(service), "true"))
	}
}

var _ = Describe("The cpi-config", func() {
	It("contains the properties that the CPI requires for each cluster", func(ctx context.Context) {
		config := template{base: manifestPath("cpi-config.yml"),
			vars: []string{"east_kubeconfig", "east_namespace", "west_kubeconfig", "west_namespace"}}.interpolate(ctx)
		names := namesOf(config, "cpis")
		Expect(names).To(HaveLen(2))
		for _, name := range names {
			Expect(lookup(config, "cpis", name, "type")).To(Equal("kubernetes"), "the program of this type is in the job kubernetes_cpi")
			properties := lookup(config, "cpis", name, "properties").(map[string]any)
			for _, property := range propertyNames("", properties) {
				Expect(jobProperties()).To(ContainElement(property))
			}
			properties["agent"] = map[string]any{"mbus": "nats://10.0.0.6:4222"}
			Expect(mustRender(ctx, properties).config().Namespace).To(HavePrefix("bosh"))
		}
	})
})

var _ = Describe("The ops file for BOSH DNS", func() {
	It("forwards names of the cluster to the cluster's DNS, for both addons", func(ctx context.Context) {
		config := template{base: fixturePath("dns.yml"), ops: []string{manifestPath("bosh-dns.yml")},
			vars: []string{"cluster_dns", "cluster_domain"}}.interpolate(ctx)
		for _, addon := range []string{"bosh-dns", "bosh-dns-systemd"} {
			handlers := lookup(config, "addons", addon, "jobs", "bosh-dns", "properties", "handlers").([]any)
			Expect(handlers).To(HaveLen(1))
			Expect(lookup(handlers[0], "domain")).To(Equal("cluster.local."))
			Expect(lookup(handlers[0], "source", "recursors")).To(Equal([]any{"10.246.0.10"}))
		}
	})
})

var _ = Describe("The Service for external.yml", func() {
	It("selects the director's VM", func(ctx context.Context) {
		DeferCleanup(emptyNamespace)
		_, err := plane.Kubectl(ctx, "apply", "--namespace", namespace, "--filename", manifestPath("external-service.yaml"))
		Expect(err).NotTo(HaveOccurred())
		service, err := cluster.CoreV1().Services(namespace).Get(ctx, "bosh-director-external", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		manifest := directorManifest(networkOptions[4]).interpolate(ctx)
		labels := lookup(manifest, "resource_pools", "vms", "cloud_properties", "labels")
		for key, value := range service.Spec.Selector {
			Expect(labels).To(HaveKeyWithValue(key, value))
		}
	})
})

var (
	headerComment   = regexp.MustCompile(`\A(?:#.*\n)*`)
	variablePattern = regexp.MustCompile(`\(\(([a-z][a-z0-9_]*)\)\)`)
)

var _ = Describe("A file in manifests/", func() {
	entries, err := os.ReadDir(manifestsDir)
	for _, entry := range entries {
		if entry.IsDir() || strings.HasSuffix(entry.Name(), ".md") || strings.HasSuffix(entry.Name(), ".go") {
			continue // a separate test covers manifests/examples
		}
		It("documents its variables and the command in its header: "+entry.Name(), func() {
			raw, err := os.ReadFile(manifestPath(entry.Name()))
			Expect(err).NotTo(HaveOccurred())
			comment := headerComment.FindString(string(raw))
			Expect(comment).To(MatchRegexp(`(?m)^#   .*(bosh |kubectl |-o manifests/)`))
			if strings.HasSuffix(entry.Name(), ".yaml") { // a Kubernetes manifest, without variables
				return
			}
			for _, match := range variablePattern.FindAllStringSubmatch(string(raw)[len(comment):], -1) {
				if _, generated := credentials[match[1]]; !generated {
					Expect(comment).To(MatchRegexp(`\b` + match[1] + `\b`))
				}
			}
		})
		It("is listed in manifests/README.md: "+entry.Name(), func() {
			raw, err := os.ReadFile(manifestPath("README.md"))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(raw)).To(ContainSubstring("(" + entry.Name() + ")"))
		})
	}
	It("exists", func() {
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).NotTo(BeEmpty())
	})
})

package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
)

// part is one choice that an operator makes: ops files and the variables that they need.
type part struct {
	name string
	ops  []string
	vars []string
}

// base is what every director on Kubernetes has.
var base = part{ops: []string{own("cpi.yml")}, vars: []string{
	"director_name", "internal_ip", "namespace", "kubeconfig", "kubernetes_cpi_url", "stemcell_url", "releases",
}}

// ways are how a director is reached.
var ways = []part{
	{name: "an address asked of the network plugin", vars: ofRange},
	{name: "service.yml", ops: []string{own("service.yml")}},
	{name: "nodeport.yml", ops: []string{own("nodeport.yml")}, vars: slices.Concat(ofRange, ofNode)},
	{name: "service.yml and nodeport.yml", ops: []string{own("service.yml"), own("nodeport.yml")}, vars: ofNode},
	{name: "external.yml", ops: []string{own("external.yml")}, vars: append(ofRange, "external_ip")},
	{name: "service.yml and external.yml", ops: []string{own("service.yml"), own("external.yml")}, vars: []string{"external_ip"}},
	{name: "vip.yml", ops: []string{fixture("external-ip.yml"), own("vip.yml")}, vars: append(ofRange, "external_ip")},
}

var (
	ofRange    = []string{"internal_cidr", "internal_gw"}
	ofNode     = []string{"node_address", "node_port_agent", "node_port_director"}
	ofRegistry = []string{"registry_repository", "registry_username", "registry_password"}
)

// accounts are by what a director works in the cluster.
var accounts = []part{
	{name: "create-env's kubeconfig"},
	{name: "in-cluster.yml", ops: []string{own("in-cluster.yml")}},
	{name: "director-kubeconfig.yml", ops: []string{own("director-kubeconfig.yml")}, vars: []string{"director_kubeconfig"}},
}

// users are whom a director knows.
var users = []part{
	{name: "its own users"},
	{name: "UAA, CredHub and a jumpbox user", ops: []string{fixture("uaa.yml"), fixture("credhub.yml"), fixture("jumpbox-user.yml")}},
}

// stemcells are where images come from.
var stemcells = []part{
	{name: "light stemcells"},
	{name: "registry.yml", ops: []string{own("registry.yml")}, vars: ofRegistry},
	{name: "registry-ca.yml", ops: []string{own("registry.yml"), own("registry-ca.yml")}, vars: append(ofRegistry, "registry_ca")},
	{name: "checksums.yml", ops: []string{own("checksums.yml")}, vars: []string{"kubernetes_cpi_sha1", "stemcell_sha1"}},
}

// stores are where a director keeps what it knows.
var stores = []part{
	{name: "its own database and blobstore"},
	{name: "an external database", ops: []string{fixture("external-db.yml"), own("native-disks.yml")}, vars: []string{"external_db_host"}},
	{name: "an S3 blobstore", ops: []string{fixture("s3-blobstore.yml")}, vars: []string{"bucket_name"}},
	{name: "a GCS blobstore", ops: []string{fixture("gcs-blobstore.yml")}, vars: []string{"bucket_name"}},
	{name: "a newer bosh.yml", ops: []string{fixture("newer.yml")}},
}

// director is the manifest of these choices.
func director(choices ...part) template {
	made := template{base: fixture("bosh.yml")}
	for _, choice := range append([]part{base}, choices...) {
		made.ops = append(made.ops, choice.ops...)
		made.vars = append(made.vars, choice.vars...)
	}
	if slices.Contains(made.ops, own("service.yml")) {
		made.values = map[string]any{"internal_ip": serviceAddress}
	}
	if slices.Contains(made.ops, own("external.yml")) && slices.Contains(made.ops, fixture("uaa.yml")) {
		made.ops = append(made.ops, own("external-uaa.yml"))
	}
	return made
}

// serviceAddress is one of the API server's Service range.
const serviceAddress = "10.246.0.60"

// combinations are all ways with all accounts and users; of stemcells and stores each occurs with each of these.
func combinations() []TableEntry {
	var entries []TableEntry
	for _, way := range ways {
		for _, account := range accounts {
			for _, known := range users {
				i := len(entries)
				choices := []part{way, account, known, stemcells[i%len(stemcells)], stores[i%len(stores)]}
				var names []string
				for _, choice := range choices {
					names = append(names, choice.name)
				}
				entries = append(entries, Entry(strings.Join(names, ", "), choices))
			}
		}
	}
	return entries
}

var _ = Describe("A director's manifest", func() {
	DescribeTable("needs the documented variables and no others, and configures the CPI for create-env and for the director",
		func(ctx context.Context, choices []part) {
			wanted := director(choices...)
			manifest := wanted.interpolate(ctx)
			ip := wanted.value("internal_ip")

			group := at(manifest, "instance_groups", "bosh", "properties")
			Expect(at(group, "director", "cpi_job")).To(Equal("kubernetes_cpi"))
			colocated := at(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi")
			Expect(colocated).To(Equal(at(manifest, "cloud_provider", "template")))
			expectProperties(at(manifest, "resource_pools", "vms", "cloud_properties"), "vm")

			ofDirector, ofCLI := mustRender(ctx, group), mustRender(ctx, at(manifest, "cloud_provider", "properties"))
			for _, made := range []files{ofDirector, ofCLI} {
				made.expectScript(ctx)
				config := made.config()
				Expect(config.Kubernetes.Namespace).To(Equal(namespace))
				if slices.Contains(wanted.ops, own("in-cluster.yml")) && config.Agent.Mbus == ofDirector.config().Agent.Mbus {
					Expect(config.Kubernetes.Kubeconfig).To(BeEmpty(), "the CPI works by the files that the kubelet mounts")
				} else {
					Expect(clientcmd.Load([]byte(config.Kubernetes.Kubeconfig))).To(HaveField("Clusters", HaveLen(1)))
				}
				if slices.Contains(wanted.ops, own("registry.yml")) {
					Expect(config.Stemcell.Registry.Repository).To(Equal(values["registry_repository"]))
				}
			}
			Expect(ofDirector.config().Agent.Mbus).To(Equal(fmt.Sprintf("nats://%s:4222", ip)))
			Expect(ofCLI.config().Agent.Mbus).To(HavePrefix("https://mbus:"))
			Expect(ofCLI.config().Agent.Mbus).To(HaveSuffix("@0.0.0.0:6868"))
			expectBlobstores(wanted, ofDirector, ofCLI)
		}, combinations())

	It("with in-cluster.yml has the files that the kubelet mounts in containers of BPM, too", func(ctx context.Context) {
		group := at(director(ways[0], accounts[1]).interpolate(ctx), "instance_groups", "bosh", "properties")
		Expect(at(group, "director", "cpi_additional_volumes")).To(ConsistOf(map[string]any{"path": mounted, "mount_only": true}))
	})

	It("with address-annotations.yml asks for static addresses by another annotation, for create-env and for the director", func(ctx context.Context) {
		wanted := director(ways[0], part{ops: []string{own("address-annotations.yml")}, vars: []string{"address_annotations"}})
		manifest := wanted.interpolate(ctx)
		for _, properties := range []any{at(manifest, "instance_groups", "bosh", "properties"), at(manifest, "cloud_provider", "properties")} {
			asked := mustRender(ctx, properties).config().Network.AddressAnnotations
			Expect(asked).To(ConsistOf(And(HaveField("Name", "ovn.kubernetes.io/ip_address"), HaveField("Value", "{{index .IPs 0}}"))))
		}
	})

	It("of another IaaS takes the CPI as a second one, whose clusters a cpi-config names", func(ctx context.Context) {
		wanted := template{base: fixture("bosh.yml"), ops: []string{fixture("other-cpi.yml"), own("cpi-secondary.yml")},
			vars: []string{"director_name", "internal_ip", "internal_cidr", "internal_gw", "kubernetes_cpi_url", "releases"}}
		manifest := wanted.interpolate(ctx)
		Expect(at(manifest, "instance_groups", "bosh", "properties", "director", "cpi_job")).To(Equal("other_cpi"))
		Expect(at(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi", "release")).To(Equal("bosh-kubernetes-cpi"))
		Expect(mustRender(ctx, at(manifest, "instance_groups", "bosh", "properties")).config().Agent.Mbus).To(Equal("nats://10.1.128.6:4222"))
	})
})

// mounted is where the kubelet puts the token of a Pod's service account.
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount"

// expectBlobstores checks what agents are told: the director's own dav blobstore, or nothing, since their env tells them.
func expectBlobstores(wanted template, ofDirector, ofCLI files) {
	GinkgoHelper()
	blobstore := ofDirector.config().Agent.Blobstore
	if slices.Contains(wanted.ops, fixture("s3-blobstore.yml")) || slices.Contains(wanted.ops, fixture("gcs-blobstore.yml")) {
		Expect(blobstore.Provider).To(BeEmpty())
	} else {
		Expect(blobstore.Provider).To(Equal("dav"))
		Expect(blobstore.Options).To(HaveKeyWithValue("endpoint", fmt.Sprintf("https://%s:25250", wanted.value("internal_ip"))))
	}
	if slices.Contains(wanted.ops, fixture("newer.yml")) {
		Expect(ofCLI.config().Agent.Blobstore.Provider).To(BeEmpty())
	} else {
		Expect(ofCLI.config().Agent.Blobstore.Provider).To(Equal("local"))
	}
}

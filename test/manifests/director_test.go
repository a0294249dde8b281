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

// option is one choice that an operator makes: ops files and the variables that they need.
type option struct {
	name string
	ops  []string
	vars []string
}

// baseOption is what every director on Kubernetes has.
var baseOption = option{ops: []string{manifestPath("cpi.yml")}, vars: []string{
	"director_name", "internal_ip", "namespace", "kubeconfig", "kubernetes_cpi_url", "stemcell_url", "releases",
}}

// networkOptions are how a director is reached.
var networkOptions = []option{
	{name: "an address asked of the network plugin", vars: rangeVariables},
	{name: "service.yml", ops: []string{manifestPath("service.yml")}},
	{name: "nodeport.yml", ops: []string{manifestPath("nodeport.yml")}, vars: slices.Concat(rangeVariables, nodeVariables)},
	{name: "service.yml and nodeport.yml", ops: []string{manifestPath("service.yml"), manifestPath("nodeport.yml")}, vars: nodeVariables},
	{name: "external.yml", ops: []string{manifestPath("external.yml")}, vars: append(rangeVariables, "external_ip")},
	{name: "service.yml and external.yml", ops: []string{manifestPath("service.yml"), manifestPath("external.yml")}, vars: []string{"external_ip"}},
	{name: "vip.yml", ops: []string{fixturePath("external-ip.yml"), manifestPath("vip.yml")}, vars: append(rangeVariables, "external_ip")},
}

var (
	rangeVariables    = []string{"internal_cidr", "internal_gw"}
	nodeVariables     = []string{"node_address", "node_port_agent", "node_port_director"}
	registryVariables = []string{"registry_repository", "registry_username", "registry_password"}
)

// accountOptions are by what a director works in the cluster.
var accountOptions = []option{
	{name: "create-env's kubeconfig"},
	{name: "in-cluster.yml", ops: []string{manifestPath("in-cluster.yml")}},
	{name: "director-kubeconfig.yml", ops: []string{manifestPath("director-kubeconfig.yml")}, vars: []string{"director_kubeconfig"}},
}

// userOptions are whom a director knows.
var userOptions = []option{
	{name: "its own users"},
	{name: "UAA, CredHub and a jumpbox user", ops: []string{fixturePath("uaa.yml"), fixturePath("credhub.yml"), fixturePath("jumpbox-user.yml")}},
}

// imageOptions are where images come from.
var imageOptions = []option{
	{name: "light stemcells"},
	{name: "registry.yml", ops: []string{manifestPath("registry.yml")}, vars: registryVariables},
	{name: "registry-ca.yml", ops: []string{manifestPath("registry.yml"), manifestPath("registry-ca.yml")}, vars: append(registryVariables, "registry_ca")},
	{name: "checksums.yml", ops: []string{manifestPath("checksums.yml")}, vars: []string{"kubernetes_cpi_sha1", "stemcell_sha1"}},
}

// storageOptions are where a director keeps what it knows.
var storageOptions = []option{
	{name: "its own database and blobstore"},
	{name: "an external database", ops: []string{fixturePath("external-db.yml"), manifestPath("native-disks.yml")}, vars: []string{"external_db_host"}},
	{name: "an S3 blobstore", ops: []string{fixturePath("s3-blobstore.yml")}, vars: []string{"bucket_name"}},
	{name: "a GCS blobstore", ops: []string{fixturePath("gcs-blobstore.yml")}, vars: []string{"bucket_name"}},
	{name: "a newer bosh.yml", ops: []string{fixturePath("newer.yml")}},
}

// directorManifest is the manifest of these choices.
func directorManifest(choices ...option) template {
	manifest := template{base: fixturePath("bosh.yml")}
	for _, choice := range append([]option{baseOption}, choices...) {
		manifest.ops = append(manifest.ops, choice.ops...)
		manifest.vars = append(manifest.vars, choice.vars...)
	}
	if slices.Contains(manifest.ops, manifestPath("service.yml")) {
		manifest.values = map[string]any{"internal_ip": serviceAddress}
	}
	if slices.Contains(manifest.ops, manifestPath("external.yml")) && slices.Contains(manifest.ops, fixturePath("uaa.yml")) {
		manifest.ops = append(manifest.ops, manifestPath("external-uaa.yml"))
	}
	return manifest
}

// serviceAddress is one of the API server's Service range.
const serviceAddress = "10.246.0.60"

// combinations are all ways with all accounts and users; of stemcells and stores each occurs with each of these.
func combinations() []TableEntry {
	var entries []TableEntry
	for _, network := range networkOptions {
		for _, account := range accountOptions {
			for _, user := range userOptions {
				i := len(entries)
				choices := []option{network, account, user, imageOptions[i%len(imageOptions)], storageOptions[i%len(storageOptions)]}
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
		func(ctx context.Context, choices []option) {
			source := directorManifest(choices...)
			manifest := source.interpolate(ctx)
			ip := source.valueOf("internal_ip")

			group := lookup(manifest, "instance_groups", "bosh", "properties")
			Expect(lookup(group, "director", "cpi_job")).To(Equal("kubernetes_cpi"))
			colocated := lookup(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi")
			Expect(colocated).To(Equal(lookup(manifest, "cloud_provider", "template")))
			expectProperties(lookup(manifest, "resource_pools", "vms", "cloud_properties"), "vm")

			ofDirector, ofCLI := mustRender(ctx, group), mustRender(ctx, lookup(manifest, "cloud_provider", "properties"))
			for _, rendered := range []renderedFiles{ofDirector, ofCLI} {
				rendered.expectScript(ctx)
				config := rendered.config()
				Expect(config.Kubernetes.Namespace).To(Equal(namespace))
				if slices.Contains(source.ops, manifestPath("in-cluster.yml")) && config.Agent.Mbus == ofDirector.config().Agent.Mbus {
					Expect(config.Kubernetes.Kubeconfig).To(BeEmpty(), "the CPI works by the files that the kubelet mounts")
				} else {
					Expect(clientcmd.Load([]byte(config.Kubernetes.Kubeconfig))).To(HaveField("Clusters", HaveLen(1)))
				}
				if slices.Contains(source.ops, manifestPath("registry.yml")) {
					Expect(config.Stemcell.Registry.Repository).To(Equal(variableValues["registry_repository"]))
				}
			}
			Expect(ofDirector.config().Agent.Mbus).To(Equal(fmt.Sprintf("nats://%s:4222", ip)))
			Expect(ofCLI.config().Agent.Mbus).To(HavePrefix("https://mbus:"))
			Expect(ofCLI.config().Agent.Mbus).To(HaveSuffix("@0.0.0.0:6868"))
			expectBlobstores(source, ofDirector, ofCLI)
		}, combinations())

	It("with in-cluster.yml has the files that the kubelet mounts in containers of BPM, too", func(ctx context.Context) {
		group := lookup(directorManifest(networkOptions[0], accountOptions[1]).interpolate(ctx), "instance_groups", "bosh", "properties")
		Expect(lookup(group, "director", "cpi_additional_volumes")).To(ConsistOf(map[string]any{"path": serviceAccountMount, "mount_only": true}))
	})

	It("with address-annotations.yml asks for static addresses by another annotation, for create-env and for the director", func(ctx context.Context) {
		source := directorManifest(networkOptions[0], option{ops: []string{manifestPath("address-annotations.yml")}, vars: []string{"address_annotations"}})
		manifest := source.interpolate(ctx)
		for _, properties := range []any{lookup(manifest, "instance_groups", "bosh", "properties"), lookup(manifest, "cloud_provider", "properties")} {
			annotations := mustRender(ctx, properties).config().Network.AddressAnnotations
			Expect(annotations).To(ConsistOf(And(HaveField("Name", "ovn.kubernetes.io/ip_address"), HaveField("Value", "{{index .IPs 0}}"))))
		}
	})

	It("of another IaaS takes the CPI as a second one, whose clusters a cpi-config names", func(ctx context.Context) {
		source := template{base: fixturePath("bosh.yml"), ops: []string{fixturePath("other-cpi.yml"), manifestPath("cpi-secondary.yml")},
			vars: []string{"director_name", "internal_ip", "internal_cidr", "internal_gw", "kubernetes_cpi_url", "releases"}}
		manifest := source.interpolate(ctx)
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "director", "cpi_job")).To(Equal("other_cpi"))
		Expect(lookup(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi", "release")).To(Equal("bosh-kubernetes-cpi"))
		Expect(mustRender(ctx, lookup(manifest, "instance_groups", "bosh", "properties")).config().Agent.Mbus).To(Equal("nats://10.1.128.6:4222"))
	})
})

// serviceAccountMount is where the kubelet puts the token of a Pod's service account.
const serviceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// expectBlobstores checks what agents are told: the director's own dav blobstore, or nothing, since their env tells them.
func expectBlobstores(source template, ofDirector, ofCLI renderedFiles) {
	GinkgoHelper()
	blobstore := ofDirector.config().Agent.Blobstore
	if slices.Contains(source.ops, fixturePath("s3-blobstore.yml")) || slices.Contains(source.ops, fixturePath("gcs-blobstore.yml")) {
		Expect(blobstore.Provider).To(BeEmpty())
	} else {
		Expect(blobstore.Provider).To(Equal("dav"))
		Expect(blobstore.Options).To(HaveKeyWithValue("endpoint", fmt.Sprintf("https://%s:25250", source.valueOf("internal_ip"))))
	}
	if slices.Contains(source.ops, fixturePath("newer.yml")) {
		Expect(ofCLI.config().Agent.Blobstore.Provider).To(BeEmpty())
	} else {
		Expect(ofCLI.config().Agent.Blobstore.Provider).To(Equal("local"))
	}
}

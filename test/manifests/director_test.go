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

// option is an option that an operator can choose, with its ops files and their variables.
type option struct {
	name string
	ops  []string
	vars []string
}

// baseOption is part of the manifest of every director on Kubernetes.
var baseOption = option{ops: []string{manifestPath("cpi.yml")}, vars: []string{
	"director_name", "internal_ip", "namespace", "kubeconfig", "kubernetes_cpi_url", "stemcell_url", "releases",
}}

// networkOptions determine how a director gets its address.
var networkOptions = []option{
	{name: "a requested address", vars: rangeVariables},
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

// accountOptions determine how a director authenticates to the cluster.
var accountOptions = []option{
	{name: "create-env's kubeconfig"},
	{name: "in-cluster.yml", ops: []string{manifestPath("in-cluster.yml")}},
	{name: "director-kubeconfig.yml", ops: []string{manifestPath("director-kubeconfig.yml")}, vars: []string{"director_kubeconfig"}},
}

// userOptions are the user accounts of a director.
var userOptions = []option{
	{name: "its own users"},
	{
		name: "UAA, CredHub and a jumpbox user",
		ops:  []string{fixturePath("uaa.yml"), fixturePath("credhub.yml"), fixturePath("jumpbox-user.yml")},
	},
}

// imageOptions determine the source of stemcells and their images, and the verification of downloads.
var imageOptions = []option{
	{name: "light stemcells"},
	{name: "registry.yml", ops: []string{manifestPath("registry.yml")}, vars: registryVariables},
	{name: "registry-ca.yml", ops: []string{manifestPath("registry.yml"), manifestPath("registry-ca.yml")}, vars: append(registryVariables, "registry_ca")},
	{name: "checksums.yml", ops: []string{manifestPath("checksums.yml")}, vars: []string{"kubernetes_cpi_sha1", "stemcell_sha1"}},
}

// storageOptions are the databases and blobstores of a director.
var storageOptions = []option{
	{name: "its own database and blobstore"},
	{name: "an external database", ops: []string{fixturePath("external-db.yml"), manifestPath("native-disks.yml"), manifestPath("small.yml")}, vars: []string{"external_db_host"}},
	{name: "an S3 blobstore", ops: []string{fixturePath("s3-blobstore.yml")}, vars: []string{"bucket_name"}},
	{name: "a GCS blobstore", ops: []string{fixturePath("gcs-blobstore.yml"), manifestPath("arm64.yml")}, vars: []string{"bucket_name"}},
	{name: "a newer bosh.yml", ops: []string{fixturePath("newer.yml")}},
}

// directorManifest returns the manifest with these options.
func directorManifest(options ...option) template {
	manifest := template{base: fixturePath("bosh.yml")}
	for _, o := range append([]option{baseOption}, options...) {
		manifest.ops = append(manifest.ops, o.ops...)
		manifest.vars = append(manifest.vars, o.vars...)
	}
	if slices.Contains(manifest.ops, manifestPath("service.yml")) {
		manifest.values = map[string]any{"internal_ip": serviceAddress}
	}
	if slices.Contains(manifest.ops, manifestPath("external.yml")) && slices.Contains(manifest.ops, fixturePath("uaa.yml")) {
		manifest.ops = append(manifest.ops, manifestPath("external-uaa.yml"))
	}
	return manifest
}

// serviceAddress is an address in the Service range of the API server.
const serviceAddress = "10.246.0.60"

// combinations returns all combinations of networkOptions, accountOptions and userOptions. Some of them also contain each of the
// imageOptions and storageOptions.
func combinations() []TableEntry {
	var entries []TableEntry
	for _, network := range networkOptions {
		for _, account := range accountOptions {
			for _, user := range userOptions {
				i := len(entries)
				options := []option{network, account, user, imageOptions[i%len(imageOptions)], storageOptions[i%len(storageOptions)]}
				var names []string
				for _, o := range options {
					names = append(names, o.name)
				}
				entries = append(entries, Entry(strings.Join(names, ", "), options))
			}
		}
	}
	return entries
}

var _ = Describe("A director's manifest", func() {
	DescribeTable("uses exactly the documented variables, and configures the CPI for create-env and for the director",
		func(ctx context.Context, options []option) {
			source := directorManifest(options...)
			manifest := source.interpolate(ctx)
			ip := source.valueOf("internal_ip")

			group := lookup(manifest, "instance_groups", "bosh", "properties")
			Expect(lookup(group, "director", "cpi_job")).To(Equal("kubernetes_cpi"))
			colocated := lookup(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi")
			Expect(colocated).To(Equal(lookup(manifest, "cloud_provider", "template")))
			expectProperties(lookup(manifest, "resource_pools", "vms", "cloud_properties"), "vm")

			forDirector, forCLI := mustRender(ctx, group), mustRender(ctx, lookup(manifest, "cloud_provider", "properties"))
			for _, rendered := range []renderedFiles{forDirector, forCLI} {
				rendered.expectScript(ctx)
				config := rendered.config()
				Expect(config.Namespace).To(Equal(namespace))
				if slices.Contains(source.ops, manifestPath("in-cluster.yml")) && config.Agent.Mbus == forDirector.config().Agent.Mbus {
					Expect(config.Kubeconfig).To(BeEmpty(), "the CPI uses the files that the kubelet mounts")
				} else {
					Expect(clientcmd.Load([]byte(config.Kubeconfig))).To(HaveField("Clusters", HaveLen(1)))
				}
				if slices.Contains(source.ops, manifestPath("registry.yml")) {
					Expect(config.Stemcell.Registry.Repository).To(Equal(variableValues["registry_repository"]))
				}
			}
			Expect(forDirector.config().Agent.Mbus).To(Equal(fmt.Sprintf("nats://%s:4222", ip)))
			Expect(forCLI.config().Agent.Mbus).To(HavePrefix("https://mbus:"))
			Expect(forCLI.config().Agent.Mbus).To(HaveSuffix("@0.0.0.0:6868"))
			expectBlobstores(source, forDirector, forCLI)
		}, combinations())

	It("lets NATS know a VM before its agent connects", func(ctx context.Context) {
		manifest := directorManifest(networkOptions[0], accountOptions[0]).interpolate(ctx)
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "nats-sync", "intervals", "poll_user_sync")).To(BeEquivalentTo(1))
	})

	It("with in-cluster.yml mounts the service account's files in BPM containers", func(ctx context.Context) {
		manifest := directorManifest(networkOptions[0], accountOptions[1]).interpolate(ctx)
		group := lookup(manifest, "instance_groups", "bosh", "properties")
		Expect(lookup(group, "director", "cpi_additional_volumes")).To(ConsistOf(map[string]any{"path": serviceAccountMount, "mount_only": true}))
	})

	It("with address-annotations.yml changes the address annotation for create-env and for the director", func(ctx context.Context) {
		annotationOption := option{ops: []string{manifestPath("address-annotations.yml")}, vars: []string{"address_annotations"}}
		manifest := directorManifest(networkOptions[0], annotationOption).interpolate(ctx)
		for _, properties := range []any{
			lookup(manifest, "instance_groups", "bosh", "properties"), lookup(manifest, "cloud_provider", "properties"),
		} {
			annotations := mustRender(ctx, properties).config().Network.AddressAnnotations
			Expect(annotations).To(ConsistOf(And(HaveField("Name", "ovn.kubernetes.io/ip_address"), HaveField("Value", "{{index .IPs 0}}"))))
		}
	})

	It("for another IaaS adds the CPI as a second CPI, for clusters in a cpi-config", func(ctx context.Context) {
		source := template{base: fixturePath("bosh.yml"), ops: []string{fixturePath("other-cpi.yml"), manifestPath("cpi-secondary.yml")},
			vars: []string{"director_name", "internal_ip", "internal_cidr", "internal_gw", "kubernetes_cpi_url", "releases"}}
		manifest := source.interpolate(ctx)
		Expect(lookup(manifest, "instance_groups", "bosh", "properties", "director", "cpi_job")).To(Equal("other_cpi"))
		Expect(lookup(manifest, "instance_groups", "bosh", "jobs", "kubernetes_cpi", "release")).To(Equal("bosh-kubernetes-cpi"))
		Expect(mustRender(ctx, lookup(manifest, "instance_groups", "bosh", "properties")).config().Agent.Mbus).To(Equal("nats://10.1.128.6:4222"))
	})
})

// serviceAccountMount is the directory in which the kubelet mounts the token of a Pod's service account.
const serviceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// expectBlobstores expects the director's dav blobstore in the CPI's configurations, or none if agents get their blobstore in their env.
func expectBlobstores(source template, forDirector, forCLI renderedFiles) {
	GinkgoHelper()
	blobstore := forDirector.config().Agent.Blobstore
	if slices.Contains(source.ops, fixturePath("s3-blobstore.yml")) || slices.Contains(source.ops, fixturePath("gcs-blobstore.yml")) {
		Expect(blobstore.Provider).To(BeEmpty())
	} else {
		Expect(blobstore.Provider).To(Equal("dav"))
		Expect(blobstore.Options).To(HaveKeyWithValue("endpoint", fmt.Sprintf("https://%s:25250", source.valueOf("internal_ip"))))
	}
	if slices.Contains(source.ops, fixturePath("newer.yml")) {
		Expect(forCLI.config().Agent.Blobstore.Provider).To(BeEmpty())
	} else {
		Expect(forCLI.config().Agent.Blobstore.Provider).To(Equal("local"))
	}
}

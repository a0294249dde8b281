package environment

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cpi/network"
)

var _ = Describe("The plan of up --restricted", func() {
	nodeImage, otherNodeImage := "example.com/bosh-node@sha256:"+strings.Repeat("1", 64), "example.com/bosh-node@sha256:"+strings.Repeat("2", 64)
	var (
		dir     Dir
		options Options
		plan    *Plan

		manifest string // after interpolation
	)
	// edit replaces parts of the limits, like the operator.
	edit := func(replacements ...string) {
		GinkgoHelper()
		path := filepath.Join(dir.Path, limitsFile)
		Expect(os.WriteFile(path, []byte(strings.NewReplacer(replacements...).Replace(readFile(path))), 0o600)).To(Succeed())
	}
	// write writes the plan to the directory, and returns the limits.
	write := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		var err error
		plan, err = NewPlan(ctx, dir, options, &cluster.Inspection{DefaultStorageClass: "fast"}, freeAddresses{})
		Expect(err).NotTo(HaveOccurred())
		_, err = dir.Write(plan, &rest.Config{Host: "https://lab"})
		Expect(err).NotTo(HaveOccurred())
		parsed, err := plan.ParseManifest([]byte(manifest))
		Expect(err).NotTo(HaveOccurred())
		Expect(dir.WriteLimits(ctx, plan, parsed)).To(Succeed())
		var limits corev1.ConfigMap
		Expect(yaml.UnmarshalStrict([]byte(readFile(filepath.Join(dir.Path, limitsFile))), &limits)).To(Succeed())
		return limits.Data
	}
	writeStemcell := func(image string) string {
		GinkgoHelper()
		return writeTarball("stemcell.MF", "{name: s, version: '1', sha1: s, operating_system: ubuntu-noble, api_version: 3, cloud_properties: "+image+"}")
	}
	index := `{"manifests": [{"annotations": {"io.containerd.image.name": "` + nodeImage + `"}}]}`
	BeforeEach(func() {
		dir, manifest = Dir{Path: GinkgoT().TempDir()}, "disk_pools: [{name: disks, cloud_properties: {storage_class: slow}}]"
		options = Options{Director: "lab", Namespace: "cf", BOSHDeployment: "/bd", Restricted: true, Cluster: &cluster.Identity{Server: "https://lab", UID: "1"},
			Release:  writeTarball("packages/kubernetes_cpi.tgz", readFile(writeTarball("kubernetes_cpi/node-image/index.json", index))),
			Stemcell: writeStemcell("{image_reference: 'example.com:5000/stemcells/noble:1.484', digest: 'sha256:" + strings.Repeat("0", 64) + "'}")}
	})

	It("limits images, StorageClasses and service accounts to those of the director", func(ctx context.Context) {
		Expect(write(ctx)).To(And(
			HaveKeyWithValue("images", "example.com:5000/stemcells/noble:\nexample.com:5000/stemcells/noble@\n"),
			HaveKeyWithValue("node_images", nodeImage+"\n"),
			HaveKeyWithValue("storage_classes", "fast\nslow\n"),
			HaveKeyWithValue("service_accounts", "bosh-cpi\n"),
			HaveKeyWithValue("capabilities", "SYS_ADMIN\nSYS_NICE\n"),
		))
	})
	It("reads the image of bosh-node in a compiled release", func(ctx context.Context) {
		options.Release = writeTarball("compiled_packages/kubernetes_cpi.tgz", readFile(writeTarball("node-image/index.json", index)))
		Expect(write(ctx)).To(HaveKeyWithValue("node_images", nodeImage+"\n"))
	})
	It("contains the images that the manifest configures", func(ctx context.Context) {
		manifest = "cloud_provider: {properties: {kubernetes: {stemcell: {registry_mirrors: {'example.com:5000': mirror.example.com}}, node_image: '" + otherNodeImage + "'}}}"
		Expect(write(ctx)).To(And(HaveKeyWithValue("images", HavePrefix("mirror.example.com/stemcells/noble:\n")), HaveKeyWithValue("node_images", otherNodeImage+"\n")))
	})
	It("adds only the image of a new release to limits that the operator edited", func(ctx context.Context) {
		write(ctx)
		edit(`nodes: ""`, `nodes: "node-a"`, nodeImage, otherNodeImage, "    slow\n", "", "    example.com:5000/stemcells/noble:\n", "")
		options = Options{Cluster: options.Cluster, Release: writeTarball("packages/kubernetes_cpi.tgz", readFile(writeTarball("kubernetes_cpi/node-image/index.json", index)))}
		Expect(write(ctx)).To(And(HaveKeyWithValue("nodes", "node-a"), HaveKeyWithValue("node_images", otherNodeImage+"\n"+nodeImage+"\n"),
			HaveKeyWithValue("storage_classes", "fast\n"), HaveKeyWithValue("images", "example.com:5000/stemcells/noble@\n")))
	})
	It("adds the image if the same command runs again after it was interrupted", func(ctx context.Context) {
		write(ctx)
		edit(nodeImage, otherNodeImage)
		options = Options{Cluster: options.Cluster, Release: options.Release}
		Expect(write(ctx)).To(HaveKeyWithValue("node_images", otherNodeImage+"\n"+nodeImage+"\n"))
	})
	It("keeps edited limits unless a flag selects the release or the stemcell", func(ctx context.Context) {
		write(ctx)
		edit(nodeImage, otherNodeImage)
		options = Options{Cluster: options.Cluster}
		Expect(write(ctx)).To(HaveKeyWithValue("node_images", otherNodeImage+"\n"))
	})
	DescribeTable("does not change limits in another form", func(ctx context.Context, form string, matcher types.GomegaMatcher) {
		write(ctx)
		edit("node_images: |\n    "+nodeImage+"\n", form)
		content := readFile(filepath.Join(dir.Path, limitsFile))
		plan.options.Release = "cpi.tgz"
		parsed, err := plan.ParseManifest([]byte(manifest))
		Expect(err).NotTo(HaveOccurred())
		Expect(dir.WriteLimits(ctx, plan, parsed)).To(matcher)
		Expect(readFile(filepath.Join(dir.Path, limitsFile))).To(Equal(content))
	},
		Entry("that has the image", "node_images: "+nodeImage+"\n", Succeed()),
		Entry("without the image", "node_images: "+otherNodeImage+"\n", MatchError(ContainSubstring("cannot add "+nodeImage+" to the list node_images, which has another form; add it yourself"))),
		Entry("with more indentation", "node_images: |\n      "+otherNodeImage+"\n", MatchError(ContainSubstring("cannot add "+nodeImage))),
	)
	It("keeps the limits if an image is unknown later", func(ctx context.Context) {
		initial := write(ctx)
		options = Options{Cluster: options.Cluster, Release: "https://example.com/cpi.tgz", ReleaseSHA1: sha256Sum, Stemcell: writeStemcell("{}"), StemcellSHA1: sha1Sum}
		Expect(write(ctx)).To(Equal(initial))
	})
	It("has all objects in the namespace of the director, except the policies", func(ctx context.Context) {
		write(ctx)
		objects, err := dir.RestrictionObjects()
		Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
				Expect(object.GetNamespace()).To(Equal("cf"), object.GetName())
			}
		}
		Expect(dir.ManualCommands("bosh", plan)).To(ContainElements(
			"kubectl apply -f "+filepath.Join(dir.Path, limitsFile), "kubectl label namespace cf bosh.cloudfoundry.org/admission-policy=on"))
	})
	DescribeTable("warns if the network plugin does not enforce network policies:", func(ctx context.Context, plugin, warning string) {
		inspection := &cluster.Inspection{NetworkPlugin: network.DetectedPlugin{Plugin: network.Plugin{Name: plugin}}}
		plan, err := NewPlan(ctx, dir, options, inspection, freeAddresses{})
		Expect(err).NotTo(HaveOccurred())
		Expect(plan.Decisions).To(ContainElement(And(HaveField("Name", "network policies"), HaveField("Value", ContainSubstring(warning)))))
	},
		Entry(nil, "flannel", "flannel does not enforce them"),
		Entry(nil, "Cilium", "first apply the CiliumNetworkPolicy in the comment of manifests/network-policy.yaml"),
		Entry(nil, "the EKS network plugin", "unless enableNetworkPolicy of the add-on vpc-cni is true"),
	)
	DescribeTable("requires", func(ctx context.Context, message string, change func()) {
		change()
		_, err := NewPlan(ctx, dir, options, &cluster.Inspection{}, freeAddresses{})
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("the image of the stemcell", "the image of this stemcell is unknown; use a light stemcell", func() { options.Stemcell = writeStemcell("{}") }),
		Entry("the image of bosh-node", "that of this release is unknown; use a release of this CPI as a file", func() {
			options.Release, options.ReleaseSHA1 = "https://example.com/cpi.tgz", sha256Sum
		}),
	)
})

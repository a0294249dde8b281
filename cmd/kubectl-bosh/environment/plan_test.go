package environment

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cpi/network"
)

// Checksums, in the formats of the BOSH CLI.
var sha1Sum, sha256Sum = strings.Repeat("1", 40), "sha256:" + strings.Repeat("2", 64)

// freeAddresses are the addresses that are not in use.
type freeAddresses struct{}

func (freeAddresses) FindFreeServiceAddress(context.Context, *cluster.Inspection) (string, error) {
	return "10.96.0.7", nil
}

func (freeAddresses) FindFreePodAddress(_ context.Context, reserved network.AddressRange, offset int) (string, error) {
	return cluster.AddressAt(reserved.Prefix, offset).String(), nil
}

var _ = Describe("The plan of up", func() {
	var dir Dir
	var options Options
	var inspection *cluster.Inspection
	BeforeEach(func() {
		dir = Dir{Path: GinkgoT().TempDir()}
		options = Options{Director: "lab", Namespace: "bosh", BOSHDeployment: "/bd", Release: "/cpi.tgz", Stemcell: "/stemcell.tgz",
			Cluster: &cluster.Identity{Server: "https://lab", UID: "1"}}
		inspection = &cluster.Inspection{APIURL: "https://10.96.0.1", DNSAddress: "10.96.0.10", Namespace: cluster.Namespace{Known: true, Exists: true,
			PodSecurity: cluster.PodSecurityPrivileged}}
	})
	newPlan := func(ctx context.Context) (*Plan, error) {
		return NewPlan(ctx, dir, options, inspection, freeAddresses{})
	}
	decisions := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		plan, err := newPlan(ctx)
		Expect(err).NotTo(HaveOccurred())
		values := map[string]string{}
		for _, decision := range plan.Decisions {
			values[decision.Name] = decision.Value
		}
		return values
	}
	// write writes the plan to the directory, and returns it.
	write := func(ctx context.Context) *Plan {
		GinkgoHelper()
		plan, err := newPlan(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = dir.Write(plan, &rest.Config{Host: "https://lab"})
		Expect(err).NotTo(HaveOccurred())
		return plan
	}
	reserve := func(plugin string) {
		inspection.NetworkPlugin = network.DetectedPlugin{Plugin: network.Plugin{Name: plugin}}
		inspection.ReservedRanges = []network.AddressRange{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Source: "IPPool bosh"}}
	}

	DescribeTable("uses the address of a Service if", func(ctx context.Context, reason string, change func()) {
		change()
		Expect(decisions(ctx)).To(And(HaveKeyWithValue("network", "service: "+reason), HaveKeyWithValue("address", HavePrefix("10.96.0.7 of Service"))))
	},
		Entry("the network plugin is unknown", "the network plugin is unknown, and so is whether it assigns requested addresses", func() {}),
		Entry("the plugin ignores requests", "flannel does not assign requested addresses", func() { inspection.NetworkPlugin.Name = "flannel" }),
		Entry("the flag requests it", "set by --network", func() { options.Network = NetworkService }),
	)

	It("uses an address in a reserved range", func(ctx context.Context) {
		reserve("Calico")
		Expect(decisions(ctx)).To(And(
			HaveKeyWithValue("network", "static: Calico assigns requested addresses, and IPPool bosh reserves 10.1.0.0/16"),
			HaveKeyWithValue("address", HavePrefix("10.1.0.6"))))
	})

	It("uses the requested address and range", func(ctx context.Context) {
		options.Range, options.Address = "10.2.0.0/16", "10.2.0.9"
		Expect(decisions(ctx)).To(HaveKeyWithValue("address", HavePrefix("10.2.0.9")))
		options.Address = "10.3.0.9"
		_, err := newPlan(ctx)
		Expect(err).To(MatchError("--address 10.3.0.9 is not in the reserved range 10.2.0.0/16; choose an address in the range, or change --range"))
	})

	DescribeTable("rejects", func(ctx context.Context, message string, change func(*Options)) {
		change(&options)
		_, err := newPlan(ctx)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(os.ReadDir(dir.Path)).To(BeEmpty())
	},
		Entry("a new director without a release", "--release and --stemcell are required", func(o *Options) { o.Release = "" }),
		Entry("a URL without a checksum", "set --release-sha1", func(o *Options) { o.Release = "https://example.com/cpi.tgz" }),
		Entry("a checksum without its file", "--stemcell-sha1 requires --stemcell; set both", func(o *Options) { o.Stemcell, o.StemcellSHA1 = "", sha1Sum }),
		Entry("one checksum, if the other file does not exist", "open /stemcell.tgz", func(o *Options) { o.ReleaseSHA1 = sha1Sum }),
		Entry("a SHA256 without its prefix", "--release-sha1 is neither a SHA1 with 40 hexadecimal digits, nor sha256: with 64",
			func(o *Options) { o.ReleaseSHA1 = strings.Repeat("0", 64) }),
		Entry("no manifest", "--bosh-deployment or --manifest is required", func(o *Options) { o.BOSHDeployment = "" }),
		Entry("two manifests", "mutually exclusive", func(o *Options) { o.Manifest = "m.yml" }),
		Entry("an unknown network", `--network "dynamic" is not valid; use one of static, service`, func(o *Options) { o.Network = "dynamic" }),
		Entry("unknown credentials", `--credentials "token" is not valid`, func(o *Options) { o.Credentials = "token" }),
		Entry("a range with host bits", "is not a CIDR", func(o *Options) { o.Range = "10.0.0.1/8" }),
		Entry("a range for a Service", "--range requires --network static", func(o *Options) { o.Range, o.Network = "10.0.0.0/8", NetworkService }),
		Entry("a name that is not a label value", `--name "my lab" is not a valid label value`, func(o *Options) { o.Director = "my lab" }),
		Entry("a range without space for the director", "--range 10.0.0.0/28 has fewer than 32 addresses", func(o *Options) { o.Range = "10.0.0.0/28" }),
		Entry("an address outside of the Service range", "--address 10.97.0.7 is not in the Service range 10.96.0.0/16", func(o *Options) {
			inspection.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
			o.Address = "10.97.0.7"
		}),
		Entry("an invalid address", "not a valid IP address", func(o *Options) { o.Address = "lab" }),
		Entry("static without a range", "requires a reserved range", func(o *Options) { o.Network = NetworkStatic }),
		Entry("a variable without a value", "--var number 1 is not in the form name=value", func(o *Options) { o.Vars = []string{"secret"} }),
		Entry("a variable that is not YAML, without its value", "--var a: the value is not valid YAML", func(o *Options) { o.Vars = []string{"a=[secret"} }),
	)

	It("uses the release and the stemcell that the plugin was published with", func(ctx context.Context) {
		options.Release, options.Stemcell = "", ""
		options.PublishedRelease = PublishedFile{"https://example.com/cpi.tgz", sha256Sum}
		options.PublishedStemcell = PublishedFile{"https://example.com/stemcell.tgz", "sha256:2"}
		Expect(write(ctx).OpsFiles[1]).To(Equal("ops/checksums.yml"))
		Expect(dir.ReadVars()).To(And(
			HaveKeyWithValue("kubernetes_cpi_url", "https://example.com/cpi.tgz"), HaveKeyWithValue("kubernetes_cpi_sha1", sha256Sum),
			HaveKeyWithValue("stemcell_url", "https://example.com/stemcell.tgz"), HaveKeyWithValue("stemcell_sha1", "sha256:2")))
	})

	Describe("with a published release and a local stemcell", func() {
		const sha256OfOne = "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
		var stemcell string
		BeforeEach(func() {
			stemcell = filepath.Join(GinkgoT().TempDir(), "stemcell.tgz")
			Expect(os.WriteFile(stemcell, []byte("one"), 0o600)).To(Succeed())
			options.Release, options.PublishedRelease, options.Stemcell = "", PublishedFile{"https://example.com/cpi.tgz", sha256Sum}, stemcell
		})

		It("computes the stemcell's checksum", func(ctx context.Context) {
			write(ctx)
			Expect(dir.ReadVars()).To(And(HaveKeyWithValue("kubernetes_cpi_sha1", sha256Sum), HaveKeyWithValue("stemcell_sha1", sha256OfOne)))
		})

		It("computes it again for another stemcell of the same director", func(ctx context.Context) {
			write(ctx)
			Expect(os.WriteFile(stemcell, []byte("two"), 0o600)).To(Succeed())
			write(ctx)
			Expect(dir.ReadVars()).To(And(HaveKeyWithValue("kubernetes_cpi_sha1", sha256Sum), HaveKeyWithValue("stemcell_sha1", Not(Equal(sha256OfOne)))))
		})
	})

	It("keeps the release of an existing director, and shows how to use the plugin's", func(ctx context.Context) {
		write(ctx)
		options.PublishedRelease = PublishedFile{"https://example.com/cpi.tgz", sha256Sum}
		Expect(decisions(ctx)).To(HaveKeyWithValue("release", And(ContainSubstring("https://example.com/cpi.tgz"), HaveSuffix("add --release published"))))
		Expect(dir.ReadVars()).To(HaveKeyWithValue("kubernetes_cpi_url", "file:///cpi.tgz"))
	})

	It("replaces the release of an existing director by the plugin's on request", func(ctx context.Context) {
		options.Release, options.ReleaseSHA1 = "https://example.com/old.tgz", sha256Sum
		options.Stemcell, options.StemcellSHA1 = "https://example.com/stemcell.tgz", sha256Sum
		write(ctx)
		options.ReleaseSHA1 = ""
		options.Release, options.PublishedRelease = Published, PublishedFile{"https://example.com/cpi.tgz", sha256Sum}
		Expect(options.ResolvePublished()).To(Succeed())
		write(ctx)
		Expect(dir.ReadVars()).To(And(
			HaveKeyWithValue("kubernetes_cpi_url", "https://example.com/cpi.tgz"), HaveKeyWithValue("kubernetes_cpi_sha1", sha256Sum)))
	})

	It("rejects the published release of a plugin that was not published", func() {
		options.Release = Published
		Expect(options.ResolvePublished()).To(MatchError(ContainSubstring("was not published with a release; set --release to a path or URL")))
	})

	It("adds checksums to the files of an existing director if a flag sets one", func(ctx context.Context) {
		local := filepath.Join(GinkgoT().TempDir(), "local.tgz")
		Expect(os.WriteFile(local, nil, 0o600)).To(Succeed())
		options.Release, options.Stemcell = local, local
		write(ctx)
		options = Options{Cluster: options.Cluster, Release: "https://example.com/cpi.tgz", ReleaseSHA1: sha256Sum}
		Expect(write(ctx).OpsFiles[1]).To(Equal("ops/checksums.yml"))
		Expect(dir.ReadVars()).To(And(HaveKeyWithValue("kubernetes_cpi_sha1", sha256Sum), HaveKeyWithValue("stemcell_sha1", HavePrefix("sha256:e3b0c44"))))
	})

	It("labels a new namespace, and an existing one only with a flag", func(ctx context.Context) {
		inspection.Namespace.Exists = false
		Expect(decisions(ctx)).To(HaveKeyWithValue("namespace", HavePrefix("created with the label")))
		inspection.Namespace = cluster.Namespace{Known: true, Exists: true, PodSecurity: "restricted"}
		Expect(decisions(ctx)).To(HaveKeyWithValue("namespace", ContainSubstring("up stops without --allow-privileged-namespace")))
		options.AllowPrivileged = true
		Expect(decisions(ctx)).To(HaveKeyWithValue("namespace", ContainSubstring("instead of restricted")))
	})

	It("contains ops files, which its options select by name", func(ctx context.Context) {
		options.OpsFiles = []string{"small.yml"}
		Expect(Options{OpsFiles: options.OpsFiles}.CheckFiles()).To(Succeed())
		Expect(write(ctx).OpsFiles).To(ContainElement("ops/small.yml"))
		Expect(filepath.Join(dir.Path, "ops/small.yml")).To(BeAnExistingFile())
	})

	It("prefers the operator's file of the same name", func(ctx context.Context) {
		GinkgoT().Chdir(GinkgoT().TempDir())
		Expect(os.WriteFile("small.yml", nil, 0o600)).To(Succeed())
		options.OpsFiles = []string{"small.yml"}
		own, err := filepath.Abs("small.yml")
		Expect(err).NotTo(HaveOccurred())
		Expect(write(ctx).OpsFiles).To(ContainElement(own))
	})

	DescribeTable("gives the director", func(ctx context.Context, credentials, opsFile string) {
		options.Credentials = credentials
		plan := write(ctx)
		Expect(plan.OpsFiles).To(ContainElement("ops/" + opsFile))
		Expect(filepath.Join(dir.Path, "ops", opsFile)).To(BeAnExistingFile())
		Expect(dir.BOSHCommand("bosh", "create-env", plan.Settings)).To(ContainElements("create-env", "/bd/bosh.yml",
			"kubeconfig="+filepath.Join(dir.Path, "cpi.kubeconfig")))
	},
		Entry("the service account of its Pod", "", "in-cluster.yml"),
		Entry("a kubeconfig", CredentialsKubeconfig, "director-kubeconfig.yml"),
	)

	It("requires the address of the API server for a kubeconfig", func(ctx context.Context) {
		options.Credentials, inspection.APIURL = CredentialsKubeconfig, ""
		_, err := newPlan(ctx)
		Expect(err).To(MatchError(ContainSubstring("requires the in-cluster address of the API server")))
	})

	Describe("for an existing director", func() {
		BeforeEach(func(ctx context.Context) {
			options.Vars = []string{"a=1"}
			write(ctx)
			options = Options{Cluster: options.Cluster}
			Expect(os.WriteFile(filepath.Join(dir.Path, stateFile), []byte(`{"director_id": "uuid"}`), 0o600)).To(Succeed())
		})

		It("keeps the recorded decisions", func(ctx context.Context) {
			plan := write(ctx)
			Expect(plan.Director).To(Equal("lab"))
			Expect(plan.Vars).To(And(HaveKeyWithValue("internal_ip", "10.96.0.7"), HaveKeyWithValue("stemcell_url", "file:///stemcell.tgz")))
			Expect(decisions(ctx)).To(HaveLen(1))
		})

		It("changes variables by flags, and reports their names only", func(ctx context.Context) {
			options.Vars, options.Stemcell = []string{"a=2"}, "/other.tgz"
			Expect(decisions(ctx)).To(And(HaveKeyWithValue("a", "changed by a flag"), HaveKeyWithValue("stemcell_url", "changed by a flag")))
			write(ctx)
			vars, err := dir.ReadVars()
			Expect(err).NotTo(HaveOccurred())
			Expect(vars.GetString("stemcell_url")).To(Equal("file:///other.tgz"))
		})

		It("changes the type of a variable", func(ctx context.Context) {
			options.Vars = []string{"a='1'"}
			write(ctx)
			vars, err := dir.ReadVars()
			Expect(err).NotTo(HaveOccurred())
			Expect(vars.GetString("a")).To(Equal("1"))
		})

		It("replaces the files of another version, except those that were edited", func(ctx context.Context) {
			plan := write(ctx)
			old, cpi, permissions := []byte("# old"), filepath.Join(dir.Path, "ops/cpi.yml"), filepath.Join(dir.Path, permissionsFile)
			for _, path := range []string{cpi, permissions} {
				Expect(os.WriteFile(path, old, 0o600)).To(Succeed())
			}
			plan.Written["ops/cpi.yml"] = checksumOf(old)
			Expect(dir.WriteSettings(plan.Settings)).To(Succeed())
			write(ctx)
			Expect(os.ReadFile(cpi)).NotTo(Equal(old))
			Expect(os.ReadFile(permissions)).To(Equal(old))
		})

		It("keeps the operator's own ops file in its directory", func(ctx context.Context) {
			plan := write(ctx)
			plan.OpsFiles = append(plan.OpsFiles, opsDir+"/custom.yml")
			Expect(dir.WriteSettings(plan.Settings)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir.Path, opsDir, "custom.yml"), []byte("[]"), 0o600)).To(Succeed())
			Expect(write(ctx).OpsFiles).To(ContainElement(opsDir + "/custom.yml"))
		})

		DescribeTable("rejects another", func(ctx context.Context, change func(*Options)) {
			change(&options)
			_, err := newPlan(ctx)
			Expect(err).To(MatchError(ContainSubstring("use another directory (--dir)")))
		},
			Entry("name", func(o *Options) { o.Director = "other" }),
			Entry("namespace", func(o *Options) { o.Namespace = "other" }),
			Entry("network", func(o *Options) { o.Network = NetworkStatic }),
			Entry("address", func(o *Options) { o.Address = "10.96.0.8" }),
			Entry("kind of credentials", func(o *Options) { o.Credentials = CredentialsKubeconfig }),
		)

		It("rejects another network before create-env ran, too, and reports that the directory can be deleted", func(ctx context.Context) {
			Expect(os.Remove(filepath.Join(dir.Path, stateFile))).To(Succeed())
			options.Network = NetworkStatic
			_, err := newPlan(ctx)
			Expect(err).To(MatchError(ContainSubstring("create-env has not used them yet; run `kubectl bosh down --dir")))
		})

		It("belongs to its cluster", func() {
			_, err := dir.VerifyCluster(cluster.Identity{Server: "https://lab", UID: "1"})
			Expect(err).NotTo(HaveOccurred())
			_, err = dir.VerifyCluster(cluster.Identity{Server: "https://lab", UID: "2"})
			Expect(err).To(MatchError(ContainSubstring("belongs to a director in another cluster")))
		})

		It("prints commands that a shell accepts", func(ctx context.Context) {
			plan, err := newPlan(ctx)
			Expect(err).NotTo(HaveOccurred())
			plan.options.KubectlFlags = []string{"--context", "my lab"}
			Expect(dir.ManualCommands("bosh", plan)).To(HaveEach(ContainSubstring("--context 'my lab'")))
			Expect(dir.NextSteps(plan, true)).To(ContainElement(`eval "$(kubectl bosh env --dir ` + dir.Path + ` --context 'my lab' --no-proxy)"`))
			Expect(QuoteCommand([]string{"echo", "it's"})).To(Equal(`echo 'it'\''s'`))
			Expect(dir.InterpolateCommand("bosh", plan.Settings)).To(ContainElement("interpolate"))
		})

		It("does not quote a damaged file in the error", func() {
			Expect(os.WriteFile(filepath.Join(dir.Path, "vars.yml"), []byte("password: [secret"), 0o600)).To(Succeed())
			_, err := dir.ReadVars()
			Expect(err).To(MatchError(And(ContainSubstring("cannot parse"), Not(ContainSubstring("secret")))))
		})
	})

	DescribeTable("requires a default StorageClass", func(ctx context.Context, noDefault bool, cloudProperties string, matcher types.GomegaMatcher) {
		inspection.NoDefaultStorageClass = noDefault
		plan, err := newPlan(ctx)
		Expect(err).NotTo(HaveOccurred())
		manifest, err := plan.ParseManifest([]byte("disk_pools: [{name: disks, cloud_properties: " + cloudProperties + "}]"))
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.CheckStorageClasses()).To(matcher)
	},
		Entry("for a disk pool without one", true, "{}", MatchError(ContainSubstring("no default StorageClass, and disk pool disks of /bd/bosh.yml sets none"))),
		Entry("but not for a disk pool with one", true, "{storage_class: fast}", Succeed()),
		Entry("unless the cluster has one", false, "{}", Succeed()),
	)

	DescribeTable("writes permissions for its namespace", func(ctx context.Context, namespace string) {
		options.Namespace = namespace
		write(ctx)
		objects, err := dir.PermissionsObjects()
		Expect(err).NotTo(HaveOccurred())
		printed, err := parseObjects([]byte(OperatorPermissions("alice", namespace, CredentialsInCluster)))
		Expect(err).NotTo(HaveOccurred())
		Expect(printed).To(ContainElement(HaveField("GetName()", ContainSubstring("alice"))))
		for _, objects := range [][]*unstructured.Unstructured{objects, printed} {
			Expect(objects).To(ContainElement(HaveField("GetKind()", "Role")))
			for _, object := range objects {
				Expect(object.GetNamespace()).To(BeElementOf("", namespace), object.GetName())
				Expect(object.GetName()).NotTo(BeEmpty())
			}
		}
	},
		Entry("with letters", "cf"),
		Entry("with digits only", "2024"),
	)

	It("reads permissions with the line ends of another editor", func(ctx context.Context) {
		write(ctx)
		expected, err := dir.PermissionsObjects()
		Expect(err).NotTo(HaveOccurred())
		path := filepath.Join(dir.Path, permissionsFile)
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(path, []byte(strings.ReplaceAll(string(content), "\n", "\r\n")), 0o600)).To(Succeed())
		objects, err := dir.PermissionsObjects()
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveLen(len(expected)))
	})

	It("writes a cloud config for the reserved range", func(ctx context.Context) {
		reserve("Antrea")
		inspection.NetworkPlugin.Annotations = nil
		plan := write(ctx)
		content, err := os.ReadFile(filepath.Join(dir.Path, "cloud-config-vars.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(And(ContainSubstring("network_range: 10.1.0.0/16"), ContainSubstring("10.1.0.1-10.1.0.20")))
		Expect(plan.Vars.GetString("internal_gw")).To(Equal("10.1.0.1"))
	})
})

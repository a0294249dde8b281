package environment

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEnvironment(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "environment directories")
}

// writeTarball writes a gzipped tar archive with this file, and returns its path.
func writeTarball(name, content string) string {
	GinkgoHelper()
	file, err := os.Create(filepath.Join(GinkgoT().TempDir(), "archive.tgz"))
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	Expect(archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})).To(Succeed())
	_, err = archive.Write([]byte(content))
	Expect(err).NotTo(HaveOccurred())
	Expect(archive.Close()).To(Succeed())
	Expect(compressed.Close()).To(Succeed())
	return file.Name()
}

func readFile(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

var _ = Describe("CheckSeries", func() {
	const compiledForNoble = `releases:
- {name: bosh, url: https://example.com/bosh-283.1.6-ubuntu-noble-1.484.tgz}
- {name: bpm, url: https://example.com/bpm-1.4.38-ubuntu-noble-1.484.tgz}
- {name: bosh-kubernetes-cpi, url: file:///releases/bosh-kubernetes-cpi.tgz}`
	check := func(stemcell, manifest string) error {
		plan := &Plan{Settings: Settings{Manifest: PublishedManifest}, Vars: Vars{"stemcell_url": stemcell}}
		parsed, err := plan.ParseManifest([]byte(manifest))
		return errors.Join(err, parsed.CheckSeries(Dir{Path: "kubernetes"}))
	}
	// writeStemcell writes a stemcell tarball for this operating system, and returns its URL.
	writeStemcell := func(operatingSystem string) string {
		GinkgoHelper()
		return "file://" + writeTarball("./stemcell.MF", "{name: s, version: '1', sha1: s, operating_system: "+operatingSystem+", api_version: 3}")
	}

	It("names the releases that are compiled for another operating system than the stemcell's, and the remedies", func() {
		Expect(check(writeStemcell("ubuntu-jammy"), compiledForNoble)).To(MatchError("the stemcell has operating system ubuntu-jammy, " +
			"but these releases of bosh-deployment/bosh.yml are compiled for ubuntu-noble: bosh, bpm; use a stemcell for ubuntu-noble, or add ops files of " +
			"bosh-deployment that replace them, for example --ops-file kubernetes/bosh-deployment/misc/source-releases/bosh.yml"))
	})
	It("accepts the operating system of the releases", func() {
		Expect(check(writeStemcell("ubuntu-noble"), compiledForNoble)).To(Succeed())
	})
	It("accepts any operating system if the releases are not compiled", func() {
		Expect(check(writeStemcell("ubuntu-jammy"), "releases: [{name: bosh, url: https://example.com/bosh-283.1.6.tgz}]")).To(Succeed())
	})
	It("reads the operating system from the URL of a stemcell that is not a file", func() {
		const stemcells = "https://example.com/light-bosh-stemcell-1.484-kubernetes-"
		Expect(check(stemcells+"ubuntu-jammy.tgz", compiledForNoble)).To(MatchError(ContainSubstring("operating system ubuntu-jammy")))
		Expect(check(stemcells+"ubuntu-noble.tgz", compiledForNoble)).To(Succeed())
	})
	It("accepts a stemcell with an unknown operating system", func() {
		Expect(check("https://example.com/stemcell.tgz", compiledForNoble)).To(Succeed())
		Expect(check("file:///missing.tgz", compiledForNoble)).To(Succeed())
	})
})

var _ = Describe("The steps that configure a director", func() {
	runtimeConfig := func(opsFiles ...string) []string {
		GinkgoHelper()
		dir := Dir{Path: GinkgoT().TempDir()}
		for _, name := range []string{"bosh-deployment/runtime-configs/dns.yml", "ops/bosh-dns.yml"} {
			path := filepath.Join(dir.Path, name)
			Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
			Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
		}
		Expect(dir.write(cloudConfigVarsFile, []byte("cluster_dns: 10.96.0.10"))).To(Succeed())
		plan := &Plan{Settings: Settings{Manifest: PublishedManifest, OpsFiles: opsFiles}, Vars: Vars{}}
		steps := dir.DirectorSteps("bosh", plan)
		return steps[len(steps)-1].Command
	}

	It("generate the certificates of BOSH DNS, which a director without CredHub cannot", func() {
		Expect(runtimeConfig("ops/cpi.yml")).To(ContainElements("update-runtime-config", "--vars-store"))
	})
	It("leave the certificates of BOSH DNS to CredHub", func() {
		Expect(runtimeConfig("/bosh-deployment/credhub.yml")).To(And(ContainElement("update-runtime-config"), Not(ContainElement("--vars-store"))))
	})
})

var _ = Describe("CheckVariables", func() {
	It("names the variables without a value, and accepts shell arithmetic and what create-env generates or has stored", func() {
		dir := Dir{Path: GinkgoT().TempDir()}
		Expect(dir.write(varsStoreFile, []byte("stored: 1"))).To(Succeed())
		manifest, err := (&Plan{Settings: Settings{Manifest: "bosh.yml"}}).ParseManifest([]byte(
			"a: ((stored)) ((tls.ca)) ((kubeconfig)) $((count + 1)) ((i++)) (( !missing.ca )) ((/other))\nvariables: [{name: tls}]"))
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.CheckVariables(dir)).To(MatchError("these variables of bosh.yml have no value: missing, /other; set each of them with --var name=value"))
	})
})

var _ = DescribeTable("Images of a manifest", func(properties, nodeImage string, mirrors map[string]string) {
	manifest, err := (&Plan{}).ParseManifest([]byte("cloud_provider: {properties: {kubernetes: " + properties + "}}"))
	Expect(err).NotTo(HaveOccurred())
	foundNodeImage, options := manifest.images()
	Expect(foundNodeImage).To(Equal(nodeImage))
	Expect(options.RegistryMirrors).To(Equal(mirrors))
},
	Entry("are those of its CPI", "{node_image: a@sha256:0, stemcell: {registry_mirrors: {a: b}, registry: {password: ((secret))}}}", "a@sha256:0", map[string]string{"a": "b"}),
	Entry("are unknown while they are variables", "((properties))", "", nil),
)

var _ = It("The image of bosh-node is in the registry for heavy stemcells, if the manifest has one", func(ctx SpecContext) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	plan := &Plan{options: Options{PublishedNodeImage: "ghcr.test/bosh-node" + digest}}
	for registry, repository := range map[string]string{
		`{}`: "ghcr.test/bosh-node", `{repository: a.test/stemcells}`: "a.test/stemcells",
		`{repository: a.test/stemcells, pull_repository: b.test/pull}`: "b.test/pull",
	} {
		manifest, err := plan.ParseManifest([]byte("cloud_provider: {properties: {kubernetes: {stemcell: {registry: " + registry + "}}}}"))
		Expect(err).NotTo(HaveOccurred())
		_, nodeImage := plan.Images(ctx, manifest)
		Expect(nodeImage).To(Equal(repository + digest))
	}
})

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
)

func TestBuildStemcell(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "build-stemcell")
}

// parts are the files in a gzipped tar archive, by name.
func parts(path string) map[string]string {
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	plain, err := gzip.NewReader(file)
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(archive)
		Expect(err).NotTo(HaveOccurred())
		found[header.Name] = string(content)
	}
}

var _ = Describe("build-stemcell", func() {
	var (
		registry *stemcells.Registry
		folder   string
		warden   string
		env      map[string]string
		log      *bytes.Buffer
	)
	BeforeEach(func() {
		registry = stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		folder = GinkgoT().TempDir()
		warden = filepath.Join(folder, "warden.tgz")
		stemcells.Tarball(warden, stemcells.Jammy.Image(), nil)
		env, log = map[string]string{}, &bytes.Buffer{}
	})
	build := func(ctx SpecContext, arguments ...string) (string, error) {
		arguments = append(arguments, "-output", folder, "-repository", registry.Host()+"/stemcells/ubuntu-jammy", "-insecure")
		return run(ctx, arguments, func(key string) string { return env[key] }, log)
	}

	It("makes of a warden stemcell a light one that the CPI takes", func(ctx SpecContext) {
		path, err := build(ctx, "-stemcell", warden)
		Expect(err).NotTo(HaveOccurred())
		Expect(filepath.Base(path)).To(Equal("light-bosh-stemcell-1.10-kubernetes-ubuntu-jammy.tgz"))
		found := parts(path)
		Expect(found["image"]).To(BeEmpty())
		manifest, err := stemcell.ParseManifest([]byte(found["stemcell.MF"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Name).To(Equal("bosh-kubernetes-ubuntu-jammy"))
		Expect(manifest.Version).To(Equal("1.10"))
		Expect(manifest.StemcellFormats).To(Equal([]string{"docker-light"}))

		store := stemcell.Store{}
		Expect(manifest.CloudProperties.IsLight()).To(BeTrue())
		cid, err := store.Pin(ctx, manifest.CloudProperties)
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(HavePrefix(registry.Host() + "/stemcells/ubuntu-jammy@sha256:"))
	})

	It("makes the same stemcell again, and uploads nothing twice", func(ctx SpecContext) {
		path, err := build(ctx, "-stemcell", warden)
		Expect(err).NotTo(HaveOccurred())
		first := parts(path)
		_, err = build(ctx, "-stemcell", warden)
		Expect(err).NotTo(HaveOccurred())
		Expect(parts(path)).To(Equal(first))
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveEach(1))) // the layer and the configuration
	})

	It("takes a root filesystem", func(ctx SpecContext) {
		rootfs := filepath.Join(folder, "rootfs.tar")
		Expect(os.WriteFile(rootfs, stemcells.Noble.Tar(), 0o600)).To(Succeed())
		path, err := build(ctx, "-rootfs", rootfs, "-os", "ubuntu-noble", "-version", "2.0", "-name", "my-stemcell")
		Expect(err).NotTo(HaveOccurred())
		var manifest map[string]any
		Expect(yaml.Unmarshal([]byte(parts(path)["stemcell.MF"]), &manifest)).To(Succeed())
		Expect(manifest).To(And(HaveKeyWithValue("name", "my-stemcell"), HaveKeyWithValue("operating_system", "ubuntu-noble"),
			HaveKeyWithValue("version", "2.0"), HaveKeyWithValue("api_version", BeEquivalentTo(3))))
	})

	Describe("of an image that is in a registry already", func() {
		// manifest is what the stemcell says that is made with these arguments.
		manifest := func(ctx SpecContext, arguments ...string) stemcell.Manifest {
			GinkgoHelper()
			path, err := run(ctx, append(arguments, "-output", folder, "-insecure"), func(key string) string { return env[key] }, log)
			Expect(err).NotTo(HaveOccurred())
			made, err := stemcell.ParseManifest([]byte(parts(path)["stemcell.MF"]))
			Expect(err).NotTo(HaveOccurred())
			return made
		}
		var pushed stemcell.Manifest
		BeforeEach(func(ctx SpecContext) {
			path, err := build(ctx, "-stemcell", warden)
			Expect(err).NotTo(HaveOccurred())
			pushed, err = stemcell.ParseManifest([]byte(parts(path)["stemcell.MF"]))
			Expect(err).NotTo(HaveOccurred())
		})

		It("names it by digest, with what its labels say of it, and pushes nothing", func(ctx SpecContext) {
			uploads := registry.UploadCounts()
			Expect(manifest(ctx, "-image", pushed.CloudProperties.ImageReference+"@"+pushed.CloudProperties.Digest)).To(Equal(pushed))
			Expect(registry.UploadCounts()).To(Equal(uploads))
		})

		It("is called as the flags say", func(ctx SpecContext) {
			made := manifest(ctx, "-image", pushed.CloudProperties.ImageReference+"@"+pushed.CloudProperties.Digest, "-os", "ubuntu-noble", "-version", "2.0", "-name", "mine")
			Expect([]string{made.Name, made.OperatingSystem, made.Version}).To(Equal([]string{"mine", "ubuntu-noble", "2.0"}))
		})

		// unlabeled puts an image, or an index of two, as others publish it.
		unlabeled := func(reference string, index bool) {
			GinkgoHelper()
			tag, err := name.NewTag(registry.Host()+"/"+reference, name.Insecure)
			Expect(err).NotTo(HaveOccurred())
			if !index {
				Expect(remote.Write(tag, empty.Image)).To(Succeed())
				return
			}
			arm, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "arm64", RootFS: v1.RootFS{Type: "layers"}})
			Expect(err).NotTo(HaveOccurred())
			Expect(remote.WriteIndex(tag, mutate.AppendManifests(empty.Index,
				mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
				mutate.IndexAddendum{Add: arm, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
			))).To(Succeed())
		}

		It("is called as its name says, where it has no labels", func(ctx SpecContext) {
			unlabeled("cloudfoundry/ubuntu-noble-stemcell:1.204", false)
			made := manifest(ctx, "-image", registry.Host()+"/cloudfoundry/ubuntu-noble-stemcell:1.204")
			Expect([]string{made.Name, made.OperatingSystem, made.Version}).To(Equal([]string{"bosh-kubernetes-ubuntu-noble", "ubuntu-noble", "1.204"}))
		})

		It("has all architectures of an index", func(ctx SpecContext) {
			unlabeled("cloudfoundry/ubuntu-noble-stemcell:1.204", true)
			made := manifest(ctx, "-image", registry.Host()+"/cloudfoundry/ubuntu-noble-stemcell:1.204")
			cid, err := stemcell.Store{}.Pin(ctx, made.CloudProperties)
			Expect(err).NotTo(HaveOccurred())
			Expect(stemcell.Architectures(cid)).To(Equal([]string{"amd64", "arm64"}))
			Expect(log.String()).To(And(ContainSubstring("linux/amd64"), ContainSubstring("linux/arm64")))
		})

		It("is none where nothing tells what it is, or where there is no image", func(ctx SpecContext) {
			unlabeled("some/thing:latest", false)
			for reference, says := range map[string]string{"some/thing": "give -os and -version", "some/other": "no such image", "Some": "-image is not an image's reference"} {
				_, err := run(ctx, []string{"-image", registry.Host() + "/" + reference, "-insecure", "-output", folder}, os.Getenv, log)
				Expect(err).To(MatchError(ContainSubstring(says)), reference)
			}
		})
	})

	It("knows itself to a registry by the environment", func(ctx SpecContext) {
		registry.Username, registry.Password = "bosh", "sesame"
		_, err := build(ctx, "-stemcell", warden, "-username", "bosh")
		Expect(inFlags(err)).To(ContainSubstring("$REGISTRY_PASSWORD belong together"))
		env["REGISTRY_PASSWORD"] = "wrong"
		_, err = build(ctx, "-stemcell", warden, "-username", "bosh")
		Expect(err).To(MatchError(stemcell.ErrDenied))
		Expect(inFlags(err)).To(ContainSubstring("check -username, $REGISTRY_PASSWORD and $REGISTRY_TOKEN"))
		env["REGISTRY_PASSWORD"] = "sesame"
		_, err = build(ctx, "-stemcell", warden, "-username", "bosh")
		Expect(err).NotTo(HaveOccurred())
	})

	It("says what to do about a registry's identity in its own words", func(ctx SpecContext) {
		_, err := run(ctx, []string{"-stemcell", warden, "-repository", registry.Host() + "/a"}, os.Getenv, log)
		Expect(inFlags(err)).To(ContainSubstring("or give -insecure when the network to it is trusted"))
		secure := stemcells.NewRegistry(true)
		DeferCleanup(secure.Close)
		_, err = run(ctx, []string{"-stemcell", warden, "-repository", secure.Host() + "/a"}, os.Getenv, log)
		Expect(inFlags(err)).To(ContainSubstring("give in -ca a file with the certificate authority that signed it"))
	})

	It("leaves no stemcell behind when it fails", func(ctx SpecContext) {
		old := filepath.Join(folder, "old.tgz")
		stemcells.Tarball(old, stemcells.Jammy.Image(), map[string]string{"api_version": "1"})
		_, err := build(ctx, "-stemcell", old)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(filepath.Glob(filepath.Join(folder, "light-*"))).To(BeEmpty())
		Expect(registry.Requests()).To(BeEmpty())
	})

	DescribeTable("refuses a command line that cannot be meant", func(ctx SpecContext, says string, arguments ...string) {
		_, err := run(ctx, arguments, os.Getenv, log)
		Expect(err).To(MatchError(ContainSubstring(says)))
	},
		Entry("nothing", "one of -stemcell, -rootfs and -image"),
		Entry("no repository", "-repository is missing", "-rootfs", "a", "-os", "a", "-version", "1"),
		Entry("a repository for what is in one", "is there already", "-image", "r.test/a", "-repository", "r.test/a"),
		Entry("no source", "one of -stemcell, -rootfs and -image", "-repository", "r.test/a"),
		Entry("two sources", "one of -stemcell, -rootfs and -image", "-repository", "r.test/a", "-stemcell", "a", "-rootfs", "b"),
		Entry("no version", "-rootfs needs -os and -version", "-repository", "r.test/a", "-rootfs", "b"),
		Entry("too much", "belong to -rootfs", "-repository", "r.test/a", "-stemcell", "a", "-version", "1"),
		Entry("a word", `"x" is no flag`, "x"),
		Entry("no CA", "-ca:", "-repository", "r.test/a", "-stemcell", "a", "-ca", "/nonexistent"),
	)
})

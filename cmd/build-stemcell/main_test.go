package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestBuildStemcell(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "build-stemcell")
}

// readTarball returns the content of the files in a gzipped tar archive, by name.
func readTarball(path string) map[string]string {
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	decompressed, err := gzip.NewReader(file)
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for archive := tar.NewReader(decompressed); ; {
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
		registry      *stemcells.Registry
		dir           string
		wardenTarball string
		env           map[string]string
		log           *bytes.Buffer
	)
	BeforeEach(func() {
		registry = stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		dir = GinkgoT().TempDir()
		wardenTarball = filepath.Join(dir, "warden.tgz")
		stemcells.Tarball(wardenTarball, stemcells.Jammy.Image(), nil)
		env, log = map[string]string{}, &bytes.Buffer{}
	})
	build := func(ctx SpecContext, arguments ...string) (string, error) {
		arguments = append(arguments, "-output", dir, "-repository", registry.Host()+"/stemcells/ubuntu-jammy", "-insecure")
		return run(ctx, arguments, func(key string) string { return env[key] }, log)
	}

	It("builds a light stemcell from a warden stemcell", func(ctx SpecContext) {
		path, err := build(ctx, "-stemcell", wardenTarball)
		Expect(err).NotTo(HaveOccurred())
		Expect(filepath.Base(path)).To(Equal("light-bosh-stemcell-1.10-kubernetes-ubuntu-jammy.tgz"))
		found := readTarball(path)
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

	It("is reproducible, and uploads nothing twice", func(ctx SpecContext) {
		path, err := build(ctx, "-stemcell", wardenTarball)
		Expect(err).NotTo(HaveOccurred())
		first := readTarball(path)
		_, err = build(ctx, "-stemcell", wardenTarball)
		Expect(err).NotTo(HaveOccurred())
		Expect(readTarball(path)).To(Equal(first))
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveEach(1))) // the layer and the configuration
	})

	It("builds a stemcell from a root filesystem", func(ctx SpecContext) {
		rootfs := filepath.Join(dir, "rootfs.tar")
		Expect(os.WriteFile(rootfs, stemcells.Noble.Tar(), 0o600)).To(Succeed())
		path, err := build(ctx, "-rootfs", rootfs, "-os", "ubuntu-noble", "-version", "2.0", "-name", "my-stemcell")
		Expect(err).NotTo(HaveOccurred())
		var manifest map[string]any
		Expect(yaml.Unmarshal([]byte(readTarball(path)["stemcell.MF"]), &manifest)).To(Succeed())
		Expect(manifest).To(And(HaveKeyWithValue("name", "my-stemcell"), HaveKeyWithValue("operating_system", "ubuntu-noble"),
			HaveKeyWithValue("version", "2.0"), HaveKeyWithValue("api_version", BeEquivalentTo(3))))
	})

	Describe("with an image in a registry", func() {
		// buildManifest builds a stemcell with these arguments and returns its manifest.
		buildManifest := func(ctx SpecContext, arguments ...string) stemcell.Manifest {
			GinkgoHelper()
			path, err := run(ctx, append(arguments, "-output", dir, "-insecure"), func(key string) string { return env[key] }, log)
			Expect(err).NotTo(HaveOccurred())
			manifest, err := stemcell.ParseManifest([]byte(readTarball(path)["stemcell.MF"]))
			Expect(err).NotTo(HaveOccurred())
			return manifest
		}
		var pushed stemcell.Manifest
		BeforeEach(func(ctx SpecContext) {
			path, err := build(ctx, "-stemcell", wardenTarball)
			Expect(err).NotTo(HaveOccurred())
			pushed, err = stemcell.ParseManifest([]byte(readTarball(path)["stemcell.MF"]))
			Expect(err).NotTo(HaveOccurred())
		})

		It("references the image by digest, reads the name and version from its labels, and pushes nothing", func(ctx SpecContext) {
			uploads := registry.UploadCounts()
			Expect(buildManifest(ctx, "-image", pushed.CloudProperties.ImageReference+"@"+pushed.CloudProperties.Digest)).To(Equal(pushed))
			Expect(registry.UploadCounts()).To(Equal(uploads))
		})

		It("takes name, operating system and version from the flags", func(ctx SpecContext) {
			manifest := buildManifest(ctx, "-image", pushed.CloudProperties.ImageReference+"@"+pushed.CloudProperties.Digest, "-os", "ubuntu-noble", "-version", "2.0", "-name", "mine")
			Expect([]string{manifest.Name, manifest.OperatingSystem, manifest.Version}).To(Equal([]string{"mine", "ubuntu-noble", "2.0"}))
		})

		// pushUnlabeled pushes an image without labels, or an index of two such images, as other projects publish them.
		pushUnlabeled := func(reference string, index bool) {
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

		It("takes operating system and version from the image name if it has no labels", func(ctx SpecContext) {
			pushUnlabeled("cloudfoundry/ubuntu-noble-stemcell:1.204", false)
			manifest := buildManifest(ctx, "-image", registry.Host()+"/cloudfoundry/ubuntu-noble-stemcell:1.204")
			Expect([]string{manifest.Name, manifest.OperatingSystem, manifest.Version}).To(Equal([]string{"bosh-kubernetes-ubuntu-noble", "ubuntu-noble", "1.204"}))
		})

		It("supports all architectures of an index", func(ctx SpecContext) {
			pushUnlabeled("cloudfoundry/ubuntu-noble-stemcell:1.204", true)
			manifest := buildManifest(ctx, "-image", registry.Host()+"/cloudfoundry/ubuntu-noble-stemcell:1.204")
			cid, err := stemcell.Store{}.Pin(ctx, manifest.CloudProperties)
			Expect(err).NotTo(HaveOccurred())
			Expect(stemcell.Architectures(cid)).To(Equal([]string{"amd64", "arm64"}))
			Expect(log.String()).To(And(ContainSubstring("linux/amd64"), ContainSubstring("linux/arm64")))
		})

		It("rejects an unknown operating system, an image that does not exist, and an invalid reference", func(ctx SpecContext) {
			pushUnlabeled("some/thing:latest", false)
			for reference, message := range map[string]string{"some/thing": "the operating system and version of the image are unknown", "some/other": "no such image", "Some": "-image is not a valid image reference"} {
				_, err := run(ctx, []string{"-image", registry.Host() + "/" + reference, "-insecure", "-output", dir}, os.Getenv, log)
				Expect(err).To(MatchError(ContainSubstring(message)), reference)
			}
		})
	})

	It("reads the registry credentials from the environment", func(ctx SpecContext) {
		registry.Username, registry.Password = "bosh", "sesame"
		_, err := build(ctx, "-stemcell", wardenTarball, "-username", "bosh")
		Expect(errorMessage(err)).To(ContainSubstring("$REGISTRY_PASSWORD must be set together"))
		env["REGISTRY_PASSWORD"] = "wrong"
		_, err = build(ctx, "-stemcell", wardenTarball, "-username", "bosh")
		Expect(err).To(MatchError(stemcell.ErrDenied))
		Expect(errorMessage(err)).To(ContainSubstring("check -username, $REGISTRY_PASSWORD and $REGISTRY_TOKEN"))
		env["REGISTRY_PASSWORD"] = "sesame"
		_, err = build(ctx, "-stemcell", wardenTarball, "-username", "bosh")
		Expect(err).NotTo(HaveOccurred())
	})

	It("names its own flags in errors about TLS", func(ctx SpecContext) {
		_, err := run(ctx, []string{"-stemcell", wardenTarball, "-repository", registry.Host() + "/a"}, os.Getenv, log)
		Expect(errorMessage(err)).To(ContainSubstring("or use -insecure if the network to it is trusted"))
		secure := stemcells.NewRegistry(true)
		DeferCleanup(secure.Close)
		_, err = run(ctx, []string{"-stemcell", wardenTarball, "-repository", secure.Host() + "/a"}, os.Getenv, log)
		Expect(errorMessage(err)).To(ContainSubstring("use -ca with a file that contains the CA certificate that signed it"))
	})

	Describe("with a command that loads images", func() {
		It("runs the command with an archive that contains the image under the name in the stemcell", func(ctx SpecContext) {
			archive := filepath.Join(dir, "loaded.tar")
			path, err := run(ctx, []string{"-stemcell", wardenTarball, "-load", "cat >" + archive, "-output", dir}, os.Getenv, log)
			Expect(err).NotTo(HaveOccurred())
			manifest, err := stemcell.ParseManifest([]byte(readTarball(path)["stemcell.MF"]))
			Expect(err).NotTo(HaveOccurred())
			digest, err := v1.NewHash(manifest.CloudProperties.Digest)
			Expect(err).NotTo(HaveOccurred())
			Expect(manifest.CloudProperties.ImageReference).To(Equal("bosh.internal/stemcell"))

			output, err := exec.CommandContext(ctx, "tar", "-C", dir, "-xf", archive).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			index, err := layout.ImageIndexFromPath(dir)
			Expect(err).NotTo(HaveOccurred())
			Expect(index.IndexManifest()).To(HaveField("Manifests", ConsistOf(And(HaveField("Digest", digest),
				HaveField("Annotations", HaveKeyWithValue("io.containerd.image.name", "bosh.internal/stemcell@"+digest.String()))))))
			image, err := index.Image(digest)
			Expect(err).NotTo(HaveOccurred())
			Expect(validate.Image(image)).To(Succeed())
		})

		It("fails without a stemcell if the command fails", func(ctx SpecContext) {
			_, err := run(ctx, []string{"-stemcell", wardenTarball, "-load", "echo no node; false", "-output", dir}, os.Getenv, log)
			Expect(err).To(MatchError(MatchRegexp(`the command of -load failed: echo no node; false .*/stemcell.tar: exit status 1`)))
			Expect(log.String()).To(ContainSubstring("no node\n"))
			Expect(filepath.Glob(filepath.Join(dir, "light-*"))).To(BeEmpty())
		})
	})

	DescribeTable("does not mention properties of the CPI in errors about", func(ctx SpecContext, message string, values map[string]string, args ...string) {
		ca := filepath.Join(dir, "ca.pem")
		Expect(os.WriteFile(ca, []byte("not a certificate"), 0o600)).To(Succeed())
		args = append(args, "-stemcell", wardenTarball)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "CA", ca)
		}
		_, err := run(ctx, args, func(key string) string { return values[key] }, log)
		Expect(err).To(HaveOccurred())
		Expect(errorMessage(err)).To(And(ContainSubstring(message), Not(ContainSubstring("stemcell.registry"))))
	},
		Entry("the repository", `-repository is not valid`, nil, "-repository", "r.test"),
		Entry("the CA certificate", "the file passed to -ca contains no certificate", nil, "-repository", "r.test/a", "-ca", "CA"),
		Entry("two credentials", "$REGISTRY_TOKEN and -username are mutually exclusive",
			map[string]string{"REGISTRY_PASSWORD": "sesame", "REGISTRY_TOKEN": "token"}, "-repository", "r.test/a", "-username", "bosh"),
	)

	It("does not write a tarball when it fails", func(ctx SpecContext) {
		old := filepath.Join(dir, "old.tgz")
		stemcells.Tarball(old, stemcells.Jammy.Image(), map[string]string{"api_version": "1"})
		_, err := build(ctx, "-stemcell", old)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(filepath.Glob(filepath.Join(dir, "light-*"))).To(BeEmpty())
		Expect(registry.Requests()).To(BeEmpty())
	})

	DescribeTable("rejects", func(ctx SpecContext, message string, arguments ...string) {
		_, err := run(ctx, arguments, os.Getenv, log)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no flags", "one of -stemcell, -rootfs and -image"),
		Entry("no repository", "-repository is required", "-rootfs", "a", "-os", "a", "-version", "1"),
		Entry("a repository together with an image", "mutually exclusive", "-image", "r.test/a", "-repository", "r.test/a"),
		Entry("a registry's options together with a load command", "uses no registry", "-stemcell", "a", "-load", "true", "-insecure"),
		Entry("no source", "one of -stemcell, -rootfs and -image", "-repository", "r.test/a"),
		Entry("two sources", "one of -stemcell, -rootfs and -image", "-repository", "r.test/a", "-stemcell", "a", "-rootfs", "b"),
		Entry("a root filesystem without a version", "-rootfs requires -os and -version", "-repository", "r.test/a", "-rootfs", "b"),
		Entry("-version together with -stemcell", "require -rootfs or -image", "-repository", "r.test/a", "-stemcell", "a", "-version", "1"),
		Entry("an argument", `unexpected argument "x"`, "x"),
		Entry("a CA file that does not exist", "-ca:", "-repository", "r.test/a", "-stemcell", "a", "-ca", "/nonexistent"),
	)
})

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/gzip"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// publishedRelease is release 0.1.0 of the last commit, published at a home on loopback: a web server and the node's registry.
type publishedRelease struct {
	dir    string // directory with the files
	home   string // URL
	port   int
	images string // repository of the images in the node's registry

	deployment string // directory that is published as bosh-deployment
}

// fileURL returns the URL of a file of the release.
func (r *publishedRelease) fileURL(file string) string {
	return r.home + "/releases/download/v0.1.0/" + file
}

// publishRelease runs scripts/publish in a new clone, for this platform only.
func publishRelease(ctx context.Context) *publishedRelease {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	address, _ := listener.Addr().(*net.TCPAddr)
	registry, _, _ := strings.Cut(os.Getenv("E2E_CNI_SHIM"), "/")
	r := &publishedRelease{dir: GinkgoT().TempDir(), home: "http://" + address.String() + "/bosh-kubernetes-cpi", port: address.Port,
		images: registry + "/published", deployment: GinkgoT().TempDir()}
	director, err := os.ReadFile("../demo/director.yml")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(r.deployment, "bosh.yml"), director, 0o600)).To(Succeed())
	files := http.StripPrefix("/bosh-kubernetes-cpi/releases/download/v0.1.0/", http.FileServer(http.Dir(r.dir)))
	server := &http.Server{Handler: files} //nolint:gosec // no timeouts on loopback
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	r.publish(ctx, r.cloneRepository(ctx), r.dir)
	return r
}

// cloneRepository returns the directory of a new clone without recorded releases, and with a local blobstore.
func (r *publishedRelease) cloneRepository(ctx context.Context) string {
	GinkgoHelper()
	checkout := filepath.Join(GinkgoT().TempDir(), "checkout")
	out, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "clone", "--quiet", "../..", checkout).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	for _, recorded := range []string{".final_builds", "releases"} {
		Expect(os.RemoveAll(filepath.Join(checkout, recorded))).To(Succeed())
	}
	Expect(os.WriteFile(filepath.Join(checkout, "config", "final.yml"),
		[]byte("name: bosh-kubernetes-cpi\nblobstore:\n  provider: local\n  options:\n    blobstore_path: .blobstore\n"), 0o600)).To(Succeed())
	r.run(ctx, checkout, "git", "add", "--all")
	r.run(ctx, checkout, "git", "commit", "--quiet", "--allow-empty", "--message", "no releases")
	return checkout
}

// publish writes the files of the checkout's commit to the directory.
func (r *publishedRelease) publish(ctx context.Context, checkout, dir string) {
	GinkgoHelper()
	r.run(ctx, checkout, "make", "publish", "VERSION=0.1.0", "HOME_URL="+r.home, "DIR="+dir)
}

// run runs a command in the checkout.
func (r *publishedRelease) run(ctx context.Context, checkout, program string, arguments ...string) {
	GinkgoHelper()
	platform := runtime.GOOS + "-" + runtime.GOARCH
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = checkout
	command.Env = append(os.Environ(), "IMAGES="+r.images, "STEMCELLS=http://"+testStemcellImage(ctx), "BOSH_DEPLOYMENT="+r.deployment,
		"PLATFORMS="+platform, "GO_PLATFORMS="+platform, "FORCE=1", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.org",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.org",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z") // the same commit in each clone
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// testStemcellImage returns the reference of the test stemcell's image.
func testStemcellImage(ctx context.Context) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "tar", "-xzOf", os.Getenv("E2E_STEMCELL"), "stemcell.MF").Output()
	Expect(err).NotTo(HaveOccurred())
	var manifest struct {
		CloudProperties struct {
			ImageReference string `json:"image_reference"`
			Digest         string
		} `json:"cloud_properties"`
	}
	Expect(yaml.Unmarshal(out, &manifest)).To(Succeed())
	return manifest.CloudProperties.ImageReference + "@" + manifest.CloudProperties.Digest
}

// download returns the content of a URL.
func download(ctx context.Context, url string) []byte {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK), url)
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return content
}

// readArchive returns the content of a file in a gzipped tar archive.
func readArchive(archive []byte, file string) []byte {
	GinkgoHelper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(archive))
	Expect(err).NotTo(HaveOccurred())
	for r := tar.NewReader(uncompressed); ; {
		header, err := r.Next()
		Expect(err).NotTo(HaveOccurred(), "no file %s", file)
		if header.Name == file {
			content, err := io.ReadAll(r)
			Expect(err).NotTo(HaveOccurred())
			return content
		}
	}
}

// installPlugin installs the kubectl plugin like krew: with the URL and the checksum of its manifest.
func (r *publishedRelease) installPlugin(ctx context.Context, path string) {
	GinkgoHelper()
	var manifest struct {
		Spec struct {
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	Expect(yaml.Unmarshal(download(ctx, r.fileURL("bosh.yaml")), &manifest)).To(Succeed())
	Expect(manifest.Spec.Platforms).To(HaveLen(1))
	platform := manifest.Spec.Platforms[0]
	archive := download(ctx, platform.URI)
	Expect(fmt.Sprintf("%x", sha256.Sum256(archive))).To(Equal(platform.SHA256))
	Expect(os.WriteFile(path, readArchive(archive, platform.Bin), 0o700)).To(Succeed()) //nolint:gosec // a program
}

var _ = Describe("A published release", Label("remote-access", "extended"), Ordered, func() {
	var r *publishedRelease
	BeforeAll(func(ctx context.Context) { r = publishRelease(ctx) }, NodeTimeout(2*longTest))

	It("is installed with only the URLs of its home", func(ctx context.Context) {
		c := newUpClient(ctx, "published")
		listener, err := embedded.ForwardLoopback(c.netns, r.port)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		plugin, directory := filepath.Join(c.dir, "kubectl-bosh"), filepath.Join(c.dir, "env")
		r.installPlugin(ctx, plugin)
		out, err := c.run(ctx, plugin, "up", "--namespace", c.namespace, "--dir", directory, "--yes", "--address", c.address,
			"--ops-file", "../demo/small.yml", "--var", "greeting=good morning",
			"--var", "demo_release="+filepath.Join(c.dir, "demo.tgz"), "--var", "disk_mib=256", "--var", "disk_cloud_properties={}")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("Downloading"))
		Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
		c.down(ctx)
	}, NodeTimeout(2*longTest))

	It("contains an image of the CNI shim for both architectures, which its manifests refer to", func(ctx context.Context) {
		layoutDir := GinkgoT().TempDir()
		out, err := exec.CommandContext(ctx, "tar", "-xf", filepath.Join(r.dir, "bosh-cni-shim-0.1.0.tar"), "-C", layoutDir).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		images, err := layout.ImageIndexFromPath(layoutDir)
		Expect(err).NotTo(HaveOccurred())
		manifest, err := images.IndexManifest()
		Expect(err).NotTo(HaveOccurred())
		image, err := images.ImageIndex(manifest.Manifests[0].Digest)
		Expect(err).NotTo(HaveOccurred())
		tag, err := name.NewTag(r.images + "/bosh-cni-shim:0.1.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(remote.WriteIndex(tag, image, remote.WithContext(ctx))).To(Succeed())

		daemonSet := readArchive(download(ctx, r.fileURL("bosh-kubernetes-cpi-manifests-0.1.0.tgz")),
			"bosh-kubernetes-cpi-0.1.0/manifests/cni-shim/daemonset.yaml")
		_, rest, _ := strings.Cut(string(daemonSet), "image: ")
		reference, _, _ := strings.Cut(rest, "\n")
		digest, err := name.NewDigest(reference)
		Expect(err).NotTo(HaveOccurred())
		pushed, err := remote.Index(digest, remote.WithContext(ctx))
		Expect(err).NotTo(HaveOccurred())
		manifest, err = pushed.IndexManifest()
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Manifests).To(ConsistOf(
			HaveField("Platform.Architecture", "amd64"), HaveField("Platform.Architecture", "arm64")))
	}, NodeTimeout(longTest))

	It("has the same files if it is published from another clone, with the next commit, which records it", func(ctx context.Context) {
		checkout, again := r.cloneRepository(ctx), GinkgoT().TempDir()
		r.run(ctx, checkout, "make", "release", "VERSION=0.1.0", "FINAL=1")
		r.run(ctx, checkout, "git", "add", ".final_builds", "releases")
		r.run(ctx, checkout, "git", "commit", "--quiet", "--message", "release 0.1.0")
		r.publish(ctx, checkout, again)
		sums, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(sums)).To(Equal(string(download(ctx, r.fileURL("SHA256SUMS")))))
	}, NodeTimeout(2*longTest))
})

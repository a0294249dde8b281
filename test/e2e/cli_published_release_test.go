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
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/gzip"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// publishedRelease is a release of the last commit, published at a home on loopback: a web server and the node's registry.
type publishedRelease struct {
	dir    string // directory with a directory of files for each version
	home   string // URL
	port   int
	images string // repository of the images in the node's registry

	deployment string // directory that is published as bosh-deployment
}

// fileURL returns the URL of a file of the release.
func (r *publishedRelease) fileURL(version, file string) string {
	return r.home + "/releases/download/v" + version + "/" + file
}

// publishRelease publishes version 0.1.0 from a new clone, for this platform only.
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
	files := http.StripPrefix("/bosh-kubernetes-cpi/releases/download/", http.FileServer(http.Dir(r.dir)))
	server := &http.Server{Handler: files} //nolint:gosec // no timeouts on loopback
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	r.publish(ctx, r.cloneRepository(ctx), "0.1.0", filepath.Join(r.dir, "v0.1.0"))
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
func (r *publishedRelease) publish(ctx context.Context, checkout, version, dir string) {
	GinkgoHelper()
	r.run(ctx, checkout, "make", "publish", "VERSION="+version, "HOME_URL="+r.home, "DIR="+dir)
}

// run runs a command in the checkout.
func (r *publishedRelease) run(ctx context.Context, checkout, program string, arguments ...string) {
	GinkgoHelper()
	platform := runtime.GOOS + "-" + runtime.GOARCH
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = checkout
	command.Env = append(os.Environ(), "IMAGES="+r.images, "STEMCELLS=http://"+testStemcellImage(ctx), "BOSH_DEPLOYMENT="+r.deployment,
		"PLATFORMS="+platform, "FORCE=1", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.org",
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
func (r *publishedRelease) installPlugin(ctx context.Context, version, path string) {
	GinkgoHelper()
	var manifest struct {
		Spec struct {
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	Expect(yaml.Unmarshal(download(ctx, r.fileURL(version, "bosh.yaml")), &manifest)).To(Succeed())
	Expect(manifest.Spec.Platforms).To(HaveLen(1))
	platform := manifest.Spec.Platforms[0]
	archive := download(ctx, platform.URI)
	Expect(fmt.Sprintf("%x", sha256.Sum256(archive))).To(Equal(platform.SHA256))
	Expect(os.WriteFile(path, readArchive(archive, platform.Bin), 0o700)).To(Succeed()) //nolint:gosec // a program
}

// publishNext publishes version 0.2.0, with a change of bosh-node.
func (r *publishedRelease) publishNext(ctx context.Context) {
	GinkgoHelper()
	checkout := r.cloneRepository(ctx)
	Expect(os.WriteFile(filepath.Join(checkout, "cmd", "bosh-node", "next.go"),
		[]byte("package main\n\nimport \"os\"\n\nfunc init() { os.Unsetenv(\"NEXT_VERSION\") }\n"), 0o600)).To(Succeed())
	r.run(ctx, checkout, "git", "add", "--all")
	r.run(ctx, checkout, "git", "commit", "--quiet", "--message", "next version")
	r.publish(ctx, checkout, "0.2.0", filepath.Join(r.dir, "v0.2.0"))
}

// pushArchive downloads the archive of an image, pushes it to the repository, and returns its reference there.
func (r *publishedRelease) pushArchive(ctx context.Context, version, image, repository string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	untar := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	untar.Stdin = bytes.NewReader(download(ctx, r.fileURL(version, image+"-"+version+".tar")))
	out, err := untar.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	images, err := layout.ImageIndexFromPath(dir)
	Expect(err).NotTo(HaveOccurred())
	manifest, err := images.IndexManifest()
	Expect(err).NotTo(HaveOccurred())
	digest := manifest.Manifests[0].Digest
	index, err := images.ImageIndex(digest)
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(repository + "/" + image + ":" + version)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.WriteIndex(tag, index, remote.WithContext(ctx))).To(Succeed())
	return repository + "/" + image + "@" + digest.String()
}

// runAction runs the steps of a composite action that no condition omits, except those that use other actions, and returns the variables for
// later steps. values are those of the expressions.
func (c *remoteClient) runAction(ctx context.Context, dir string, values map[string]string) map[string]string {
	GinkgoHelper()
	dir, err := filepath.Abs(dir)
	Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(filepath.Join(dir, "action.yml"))
	Expect(err).NotTo(HaveOccurred())
	var action struct {
		Runs struct {
			Steps []struct {
				ID, Name, Run, If string
				Env               map[string]string
			}
		}
	}
	Expect(yaml.Unmarshal(content, &action)).To(Succeed())
	values["github.action_path"] = dir
	expression := regexp.MustCompile(`\$\{\{ (.*?) \}\}`)
	pathFile, variablesFile, outputsFile := filepath.Join(c.dir, "path"), filepath.Join(c.dir, "variables"), filepath.Join(c.dir, "outputs")
	for _, step := range action.Runs.Steps {
		if step.Run == "" || step.If != "" {
			continue
		}
		command := c.command(ctx, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
		added, _ := os.ReadFile(pathFile)
		command.Env = append(command.Env, "RUNNER_TEMP="+c.dir, "GITHUB_PATH="+pathFile, "GITHUB_ENV="+variablesFile, "GITHUB_OUTPUT="+outputsFile, "BOSH_ALL_PROXY=",
			"PATH="+strings.ReplaceAll(string(added), "\n", ":")+os.Getenv("PATH"))
		for name, value := range step.Env {
			value = expression.ReplaceAllStringFunc(value, func(found string) string {
				known := expression.FindStringSubmatch(found)[1]
				Expect(values).To(HaveKey(known))
				return values[known]
			})
			command.Env = append(command.Env, name+"="+value)
		}
		out, err := command.CombinedOutput()
		GinkgoWriter.Println(step.Name + ":\n" + string(out))
		Expect(err).NotTo(HaveOccurred(), "%s: %s", step.Name, out)
		outputs, _ := os.ReadFile(outputsFile)
		for line := range strings.Lines(string(outputs)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values["steps."+step.ID+".outputs."+name] = value
		}
	}
	variables := map[string]string{}
	exported, err := os.ReadFile(variablesFile)
	Expect(err).NotTo(HaveOccurred())
	for _, match := range regexp.MustCompile(`(?s)(\w+)<<END_OF_VALUE\n(.*?)\nEND_OF_VALUE\n`).FindAllStringSubmatch(string(exported), -1) {
		variables[match[1]] = match[2]
	}
	return variables
}

// nodeImages returns the images of bosh-node in the volumes of all VM and attachment Pods.
func (c *remoteClient) nodeImages(ctx context.Context) (images []string) {
	GinkgoHelper()
	pods, err := c.env.cluster.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		for _, volume := range pod.Spec.Volumes {
			if volume.Image != nil {
				images = append(images, volume.Image.Reference)
			}
		}
	}
	return images
}

var _ = Describe("A published release", Label("remote-access", "extended"), Ordered, func() {
	var r *publishedRelease
	BeforeAll(func(ctx context.Context) { r = publishRelease(ctx) }, NodeTimeout(2*longTest))

	It("is installed with only the URLs of its home and a mirror of its image, and upgraded with what up prints", func(ctx context.Context) {
		c := newUpClient(ctx, "published")
		listener, err := embedded.ForwardLoopback(c.netns, r.port)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		plugin, mirror, mirrored := filepath.Join(c.dir, "kubectl-bosh"), filepath.Join(c.dir, "mirror.yml"), r.images+"-mirror"
		Expect(os.WriteFile(mirror, []byte("- {type: replace, path: '/cloud_provider/properties/kubernetes/stemcell?/registry_mirrors', value: {"+
			strconv.Quote(r.images)+": "+strconv.Quote(mirrored)+"}}\n"), 0o600)).To(Succeed())
		up := func(flags ...string) string {
			out, err := c.run(ctx, plugin, append([]string{"up", "--dir", filepath.Join(c.dir, "env"), "--yes"}, flags...)...)
			Expect(err).NotTo(HaveOccurred(), out)
			return out
		}

		r.installPlugin(ctx, "0.1.0", plugin)
		image := r.pushArchive(ctx, "0.1.0", "bosh-node", mirrored)
		Expect(up("--namespace", c.namespace, "--address", c.address, "--ops-file", "../demo/small.yml", "--ops-file", mirror,
			"--var", "greeting=good morning", "--var", "demo_release="+filepath.Join(c.dir, "demo.tgz"),
			"--var", "disk_mib=256", "--var", "disk_cloud_properties={}")).To(ContainSubstring("Downloading"))
		Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
		Expect(c.nodeImages(ctx)).To(ConsistOf(image, image))

		r.publishNext(ctx)
		r.installPlugin(ctx, "0.2.0", plugin)
		next := r.pushArchive(ctx, "0.2.0", "bosh-node", mirrored)
		Expect(next).NotTo(Equal(image), "invalid test: both versions have the same image")
		Expect(up()).To(MatchRegexp(`not the one of this plugin, \S+v0\.2\.0\S+; to use that, add --release published\n`))
		up("--release", "published")
		Eventually(c.readJobResponse).WithContext(ctx).Should(And(ContainSubstring("good morning"), ContainSubstring("counted")))
		Expect(c.nodeImages(ctx)).To(ConsistOf(next, next))
		c.down(ctx)
	}, NodeTimeout(4*longTest))

	It("is installed by the action bosh-lite, and later steps of the job log in", Label("journey"), func(ctx context.Context) {
		c := newUpClient(ctx, "ci")
		listener, err := embedded.ForwardLoopback(c.netns, r.port)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		r.pushArchive(ctx, "0.1.0", "bosh-node", r.images)
		login, err := filepath.Abs("testdata/director-login.yml")
		Expect(err).NotTo(HaveOccurred())
		variables := c.runAction(ctx, "../../.github/actions/bosh-lite", map[string]string{
			"github.server_url": strings.TrimSuffix(r.home, "/bosh-kubernetes-cpi"), "github.action_repository": "bosh-kubernetes-cpi",
			"inputs.version || github.action_ref":                                  "v0.1.0",
			"inputs.kubeconfig || format('{0}/bosh-lite/kubeconfig', runner.temp)": c.env.kubeconfig,
			"inputs.flags": "--namespace " + c.namespace + " --address " + c.address + " --ops-file " + login + " --var 'greeting=good morning'" +
				" --var demo_release=" + filepath.Join(c.dir, "demo.tgz") + " --var 'disk_cloud_properties={}' --var disk_mib=256",
		})
		Expect(variables).To(And(HaveKeyWithValue("BOSH_ENVIRONMENT", c.address), HaveKeyWithValue("BOSH_CA_CERT", ContainSubstring("CERTIFICATE"))))
		c.proxyAddress = strings.TrimPrefix(variables["BOSH_ALL_PROXY"], "socks5://")
		Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
		Expect(os.Symlink("bosh-lite/director", filepath.Join(c.dir, "env"))).To(Succeed())
		c.down(ctx)
	}, NodeTimeout(2*longTest))

	It("contains an image of the CNI shim for both architectures, which its manifests refer to", func(ctx context.Context) {
		r.pushArchive(ctx, "0.1.0", "bosh-cni-shim", r.images)

		daemonSet := readArchive(download(ctx, r.fileURL("0.1.0", "bosh-kubernetes-cpi-manifests-0.1.0.tgz")),
			"bosh-kubernetes-cpi-0.1.0/manifests/cni-shim/daemonset.yaml")
		_, rest, _ := strings.Cut(string(daemonSet), "image: ")
		reference, _, _ := strings.Cut(rest, "\n")
		digest, err := name.NewDigest(reference)
		Expect(err).NotTo(HaveOccurred())
		pushed, err := remote.Index(digest, remote.WithContext(ctx))
		Expect(err).NotTo(HaveOccurred())
		manifest, err := pushed.IndexManifest()
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Manifests).To(ConsistOf(
			HaveField("Platform.Architecture", "amd64"), HaveField("Platform.Architecture", "arm64")))
	}, NodeTimeout(longTest))

	It("refers to pages of the repository in its manifests", func(ctx context.Context) {
		manifests := download(ctx, r.fileURL("0.1.0", "bosh-kubernetes-cpi-manifests-0.1.0.tgz"))
		Expect(string(readArchive(manifests, "bosh-kubernetes-cpi-0.1.0/manifests/cpi.yml"))).To(ContainSubstring(
			"(" + r.home + "/blob/v0.1.0/docs/guides/networks.md)"))
	}, NodeTimeout(longTest))

	It("contains the examples, with manifests that name their release by URL and checksum", func(ctx context.Context) {
		manifests := download(ctx, r.fileURL("0.1.0", "bosh-kubernetes-cpi-manifests-0.1.0.tgz"))
		for _, example := range []string{"routers.yml", "etcd.yml"} {
			var manifest struct {
				Releases []struct{ Name, Version, URL, SHA1 string } `json:"releases"`
			}
			Expect(yaml.Unmarshal(readArchive(manifests, "bosh-kubernetes-cpi-0.1.0/manifests/examples/"+example), &manifest)).To(Succeed())
			Expect(manifest.Releases).To(HaveLen(1))
			release := manifest.Releases[0]
			Expect(release.Version).To(Equal("0.1.0"))
			Expect(release.SHA1).To(Equal(fmt.Sprintf("sha256:%x", sha256.Sum256(download(ctx, release.URL)))))
		}
	}, NodeTimeout(longTest))

	It("has the same files if it is published from another clone, with the next commit, which records it", func(ctx context.Context) {
		checkout, again := r.cloneRepository(ctx), GinkgoT().TempDir()
		r.run(ctx, checkout, "make", "release", "VERSION=0.1.0", "FINAL=1")
		r.run(ctx, checkout, "git", "add", ".final_builds", "releases")
		r.run(ctx, checkout, "git", "commit", "--quiet", "--message", "release 0.1.0")
		r.publish(ctx, checkout, "0.1.0", again)
		sums, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(sums)).To(Equal(string(download(ctx, r.fileURL("0.1.0", "SHA256SUMS")))))
	}, NodeTimeout(2*longTest))
})

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// registry is a running registry with TLS and basic authentication.
type registry interface {
	Host() string
	CA() string
	Requests() []string
	Close()
}

func startMemoryRegistry(context.Context) (registry, error) {
	r := stemcells.NewRegistry(true)
	r.Username, r.Password = stemcells.DebianUsername, stemcells.DebianPassword
	return r, nil
}

func startDebianRegistry(ctx context.Context) (registry, error) {
	return stemcells.StartDebianRegistry(ctx, GinkgoT().TempDir(), true)
}

// useRegistry configures the CPI with a registry for heavy stemcells, and with additional stemcell options. If pullName is set, the
// node pulls from the registry under that name.
func (env *testEnv) useRegistry(r registry, pullName string, options map[string]any) {
	GinkgoHelper()
	registryConfig := map[string]any{
		"repository": r.Host() + "/bosh/stemcells", "ca": r.CA(),
		"username": stemcells.DebianUsername, "password": stemcells.DebianPassword,
		"pull_secret": map[string]any{"name": "bosh-stemcells"},
	}
	name := r.Host()
	if pullName != "" {
		name = pullName
		registryConfig["pull_repository"] = pullName + "/bosh/stemcells"
	}
	Expect(env.embedded.Nodes[0].TrustRegistry(name, r.Host(), r.CA())).To(Succeed())
	stemcellConfig := map[string]any{"registry": registryConfig}
	maps.Copy(stemcellConfig, options)
	env.Director = env.newDirector(env.kubeconfig, map[string]any{"stemcell": stemcellConfig})
}

// buildHeavyStemcell builds the tarball of a warden stemcell with this root filesystem and with the mark in a file. It unpacks the
// tarball like the director, and returns the image's path and the cloud_properties.
func buildHeavyStemcell(rootfs, mark string) (string, stemcell.Properties) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	content, err := os.ReadFile(rootfs)
	Expect(err).NotTo(HaveOccurred())
	tarball := filepath.Join(dir, "stemcell.tgz")
	stemcells.Tarball(tarball, stemcells.AddFile(content, "etc/stemcell-mark", mark), nil)
	manifest, image, err := stemcell.Extract(tarball, dir)
	Expect(err).NotTo(HaveOccurred())
	Expect(manifest.StemcellFormats).To(ContainElement("warden-tar"))
	return image, manifest.CloudProperties
}

// countWrites counts the requests that write to the registry, by method.
func countWrites(r registry) map[string]int {
	counts := map[string]int{}
	for _, request := range r.Requests() {
		method, _, _ := strings.Cut(request, " ")
		if method != "GET" && method != "HEAD" {
			counts[method]++
		}
	}
	return counts
}

var _ = Describe("A heavy stemcell", Label("stemcells"), func() {
	DescribeTable("is pushed to the registry once, is pulled by the node, boots, and can be deleted when no VM uses it",
		func(ctx context.Context, start func(context.Context) (registry, error), rootfs, pullName string) {
			env := newTestEnv(ctx)
			r, err := start(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(r.Close)
			env.useRegistry(r, pullName, nil)
			mark := fmt.Sprintf("%s at %s", env.namespace, time.Now())
			image, properties := buildHeavyStemcell(os.Getenv(rootfs), mark)

			By("creating the stemcell twice")
			uploaded := env.mustCall(ctx, "create_stemcell", image, properties)
			cid := uploaded.Text()
			Expect(cid).To(HavePrefix("heavy://" + r.Host() + "/bosh/stemcells@sha256:"))
			Expect(uploaded.Stderr).To(ContainSubstring("percent=100"))
			// The uploads of a layer and a configuration are started, sent and completed. The manifest is put by digest and by tag.
			expectedWrites := map[string]int{"POST": 2, "PATCH": 2, "PUT": 4}
			Eventually(func() map[string]int { return countWrites(r) }).WithContext(ctx).Should(Equal(expectedWrites))
			Expect(env.mustCall(ctx, "create_stemcell", image, properties).Text()).To(Equal(cid))

			By("creating a VM")
			vm := env.createVMFromSpec(ctx, vmSpec{stemcellCID: cid})
			Expect(vm.run(ctx, "cat /etc/stemcell-mark")).To(Equal(mark))
			Expect(countWrites(r)).To(Equal(expectedWrites))
			Expect(r.Requests()).To(ContainElement(HavePrefix("GET /v2/bosh/stemcells/blobs/sha256:")))
			name := r.Host()
			if pullName != "" {
				name = pullName
			}
			Expect(vm.pod(ctx).Spec.Containers[0].Image).To(HavePrefix(name + "/bosh/stemcells@sha256:"))
			secret, err := env.cluster.CoreV1().Secrets(env.namespace).Get(ctx, "bosh-stemcells", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(secret.Type).To(Equal(corev1.SecretTypeDockerConfigJson))

			By("deleting the stemcell")
			Expect(env.mustFail(ctx, "delete_stemcell", cid).Message).To(ContainSubstring("in use by VM " + vm.cid))
			env.mustCall(ctx, "delete_vm", vm.cid)
			env.mustCall(ctx, "delete_stemcell", cid)
			Eventually(r.Requests).WithContext(ctx).Should(ContainElement(HavePrefix("DELETE /v2/bosh/stemcells/manifests/sha256:")))
			Expect(env.mustCall(ctx, "create_stemcell", image, properties).Text()).To(Equal(cid))
		},
		Entry("with runit, from go-containerregistry's registry", startMemoryRegistry, "E2E_ROOTFS", "", NodeTimeout(longTest)),
		Entry("with systemd, from Debian's registry, under another name for the node", startDebianRegistry, "E2E_ROOTFS_SYSTEMD", "stemcells.bosh.test", Label("extended"), NodeTimeout(longTest)),
	)
})

var _ = Describe("A light stemcell with a loaded image", Label("stemcells"), func() {
	It("boots from the image that build-stemcell -load imported into the node, without a registry", func(ctx context.Context) {
		env := newTestEnv(ctx)
		node := env.embedded.Nodes[0]
		content, err := os.ReadFile(os.Getenv("E2E_ROOTFS"))
		Expect(err).NotTo(HaveOccurred())
		dir, mark := GinkgoT().TempDir(), fmt.Sprintf("%s at %s", env.namespace, time.Now())
		rootfs := filepath.Join(dir, "rootfs.tar.gz")
		Expect(os.WriteFile(rootfs, stemcells.AddFile(content, "etc/stemcell-mark", mark), 0o600)).To(Succeed())
		load := "ctr --address " + filepath.Join(node.Dir, "containerd.sock") + " --namespace k8s.io images import"
		command := exec.CommandContext(ctx, "../../scripts/build-stemcell", "-rootfs", rootfs, "-os", "ubuntu-jammy", "-version", "1.0", "-load", load, "-output", dir)
		command.Stderr = GinkgoWriter
		path, err := command.Output()
		Expect(err).NotTo(HaveOccurred())

		stemcell := strings.TrimSpace(string(path))
		vm := env.createVMFromSpec(ctx, vmSpec{stemcell: stemcell, properties: map[string]any{"node_selector": map[string]any{corev1.LabelHostname: node.Name}}})
		Expect(vm.run(ctx, "cat /etc/stemcell-mark")).To(Equal(mark))
		image := vm.pod(ctx).Spec.Containers[0].Image
		Expect(image).To(HavePrefix("bosh.internal/stemcell@sha256:"))
		env.mustCall(ctx, "delete_vm", vm.cid)
		_, err = node.Ctr(ctx, "images", "remove", image)
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(longTest))
})

// olderAgentConfig is the agent.json of Kubernetes stemcells of 2018.
const olderAgentConfig = `{
  "Platform": {"Linux": {"CreatePartitionIfNoEphemeralDisk": false, "SkipDiskSetup": true}},
  "Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/var/vcap/bosh/instance_settings.json"}]}}
}`

// pushOlderStemcell pushes an image that is based on this light stemcell's image, but similar to older Kubernetes stemcells. It returns
// the references of the image by tag and by digest.
func pushOlderStemcell(ctx context.Context, tarball, tag string) (byTag, byDigest string) {
	GinkgoHelper()
	properties, err := stemcellProperties(tarball)
	Expect(err).NotTo(HaveOccurred())
	repository, err := name.NewRepository(properties["image_reference"].(string), name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	base, err := remote.Image(repository.Digest(properties["digest"].(string)), remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred())
	layer := static.NewLayer(stemcells.TarFile("var/vcap/bosh/agent.json", olderAgentConfig), types.OCIUncompressedLayer)
	image, err := mutate.AppendLayers(base, layer)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(repository.Tag(tag), image, remote.WithContext(ctx))).To(Succeed())
	digest, err := image.Digest()
	Expect(err).NotTo(HaveOccurred())
	return repository.Tag(tag).Name(), repository.Digest(digest.String()).Name()
}

var _ = Describe("An older Kubernetes stemcell", Label("stemcells"), func() {
	It("is pinned to the digest of its tag, and its agent finds its settings", func(ctx context.Context) {
		env := newTestEnv(ctx)
		tag, pinned := pushOlderStemcell(ctx, os.Getenv("E2E_STEMCELL"), "older-"+env.namespace)
		cid := env.mustCall(ctx, "create_stemcell", "image", map[string]any{"image": tag}).Text()
		Expect(cid).To(Equal(pinned + "#" + runtime.GOARCH))
		vm := env.createVMFromSpec(ctx, vmSpec{stemcellCID: cid})
		vm.run(ctx, "test -s /var/vcap/bosh/warden-cpi-agent-env.json && test ! -e /var/vcap/bosh/instance_settings.json")
		env.mustCall(ctx, "delete_vm", vm.cid)
		env.mustCall(ctx, "delete_stemcell", cid)
		Expect(env.mustCall(ctx, "create_stemcell", "image", map[string]any{"image": tag}).Text()).To(Equal(cid), "delete_stemcell deletes nothing from the registry")
	}, NodeTimeout(longTest))
})

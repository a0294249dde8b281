package main_test

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("kubectl bosh stemcell", func() {
	var (
		ws     workspace
		images string // registry and path of the images
	)
	BeforeEach(func() {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		DeferCleanup(server.Close)
		images = strings.TrimPrefix(server.URL, "http://") + "/stemcells"
		ws = newWorkspaceWithCLI()
		for _, tag := range []string{"1.99", "1.484", "1.485-rc.1", "latest"} {
			image, err := random.Image(64, 1)
			Expect(err).NotTo(HaveOccurred())
			reference, err := name.NewTag(images + "/ubuntu-noble-stemcell:" + tag)
			Expect(err).NotTo(HaveOccurred())
			Expect(remote.Write(reference, image)).To(Succeed())
		}
	})
	// written returns the name of the stemcell that the command writes with these arguments.
	written := func(arguments ...string) string {
		GinkgoHelper()
		session := ws.run("", append([]string{"stemcell", "--output", "."}, arguments...)...)
		Expect(session).To(gexec.Exit(0))
		path := strings.TrimSpace(string(session.Out.Contents()))
		Expect(ws.path(path)).To(BeARegularFile())
		return path
	}

	It("writes a light stemcell for the latest version of an OS, for one of its versions, or for an image", func() {
		Expect(written("ubuntu-noble", "--from", images)).To(Equal("light-bosh-stemcell-1.484-kubernetes-ubuntu-noble.tgz"))
		Expect(written("ubuntu-noble", "1.99", "--from", images)).To(Equal("light-bosh-stemcell-1.99-kubernetes-ubuntu-noble.tgz"))
		Expect(written(images+"/ubuntu-noble-stemcell:latest", "--version", "7")).To(Equal("light-bosh-stemcell-7-kubernetes-ubuntu-noble.tgz"))
	})

	It("uploads the stemcell to the director of the directory", func() {
		Expect(ws.up()).To(gexec.Exit(0))
		Expect(ws.run("", "stemcell", "ubuntu-noble", "--from", images, "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(ws.read("director")).To(MatchRegexp(
			`admin:swordfish@10\.246\.0\.60 CA socks5://127\.0\.0\.1 upload-stemcell \S+/light-bosh-stemcell-1\.484-kubernetes-ubuntu-noble\.tgz `))
	})

	It("requires the BOSH CLI before it reads the registry", func() {
		session := ws.startWith([]string{"PATH=/empty"}, "", "stemcell", "ubuntu-noble", "--from", "registry.invalid")
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: cannot find the BOSH CLI: .*; install it"))
	})

	DescribeTable("names the reason if", func(message string, arguments func() []string) {
		session := ws.run("", append([]string{"stemcell"}, arguments()...)...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(message))
	},
		Entry("the directory has no director", "^error: directory kubernetes has no director yet", func() []string { return []string{"ubuntu-noble", "1.99", "--from", images} }),
		Entry("the version is unknown", "^error: image .*ubuntu-noble-stemcell:2.0: .* has no such image or repository; check the name and the tag", func() []string { return []string{"ubuntu-noble", "2.0", "--from", images, "--output", "."} }),
		Entry("the image has no version", "unknown; set both; `kubectl bosh stemcell` has the flags --os and --version\n", func() []string { return []string{images + "/ubuntu-noble-stemcell:latest", "--output", "."} }),
		Entry("the registry is unknown", `cannot connect to registry registry\.invalid: .*; check its address, the network and proxies\n`, func() []string { return []string{"registry.invalid/ubuntu-noble-stemcell:1.99", "--output", "."} }),
		Entry("it has no argument", "^error: stemcell requires an IMAGE, or an OS such as ubuntu-noble and optionally its VERSION\n", func() []string { return nil }),
		Entry("an image has another version", "requires an OS instead of an IMAGE", func() []string { return []string{images + "/ubuntu-noble-stemcell:1.99", "2"} }),
	)

	It("is not necessary for up, which accepts an image", func() {
		Expect(ws.run("y\n", "up", "--namespace", ws.namespace, "--bosh", "./create-env", "--bosh-deployment", "bosh-deployment", "--release", "cpi.tgz",
			"--stemcell", images+"/ubuntu-noble-stemcell:1.484", "--var", "releases=/releases", "--credentials", "kubeconfig")).To(gexec.Exit(0))
		Expect(ws.vars()).To(HaveKeyWithValue("stemcell_url", "file://"+ws.path("kubernetes/light-bosh-stemcell-1.484-kubernetes-ubuntu-noble.tgz")))
	})
})

package environment

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The published bosh-deployment", func() {
	var (
		dir       Dir
		published PublishedFile
		requests  int
	)
	// serve publishes an archive with files of these names, which also are their contents.
	serve := func(names ...string) {
		GinkgoHelper()
		var archive bytes.Buffer
		compressed := gzip.NewWriter(&archive)
		files := tar.NewWriter(compressed)
		for _, name := range names {
			Expect(files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name)), Typeflag: tar.TypeReg})).To(Succeed())
			Expect(files.Write([]byte(name))).Error().NotTo(HaveOccurred())
		}
		Expect(files.Close()).To(Succeed())
		Expect(compressed.Close()).To(Succeed())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			_, _ = w.Write(archive.Bytes())
		}))
		DeferCleanup(server.Close)
		published = PublishedFile{URL: server.URL, Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256(archive.Bytes()))}
	}
	BeforeEach(func() {
		dir, requests = Dir{Path: filepath.Join(GinkgoT().TempDir(), "env")}, 0
		serve("bosh-deployment/bosh.yml", "bosh-deployment/runtime-configs/dns.yml", "bosh-deployment/../../escaped")
	})

	It("is downloaded once, without files outside of its directory", func(ctx context.Context) {
		for range 2 {
			Expect(dir.FetchDeployment(ctx, published)).To(Succeed())
			Expect(os.ReadFile(filepath.Join(dir.Path, "bosh-deployment", "runtime-configs", "dns.yml"))).To(BeEquivalentTo("bosh-deployment/runtime-configs/dns.yml"))
		}
		Expect(requests).To(Equal(1))
		Expect(os.Stat(dir.Path)).To(HaveField("Mode()", os.ModeDir|0o700), "it will contain passwords")
		Expect(filepath.Join(filepath.Dir(dir.Path), "escaped")).NotTo(BeAnExistingFile())
	})

	It("is rejected with another checksum, and leaves nothing", func(ctx context.Context) {
		published.Checksum = "sha256:0"
		Expect(dir.FetchDeployment(ctx, published)).To(MatchError(And(ContainSubstring(" has checksum sha256:"), ContainSubstring("but sha256:0 was published; check the network"))))
		Expect(dir.Path).NotTo(BeADirectory())
	})

	It("is named in the error if the server does not have it", func(ctx context.Context) {
		server := httptest.NewServer(http.NotFoundHandler())
		DeferCleanup(server.Close)
		Expect(dir.FetchDeployment(ctx, PublishedFile{URL: server.URL + "/x.tgz"})).To(MatchError(ContainSubstring("/x.tgz: 404 Not Found; check the network, or set --bosh-deployment")))
	})
})

package dav_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/webdav"

	"bosh-kubernetes-cpi/test/stemcell/dav"
)

func TestDav(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "bosh-blobstore-dav of the test stemcell")
}

// startBlobstore starts a WebDAV server like a director's blobstore. It returns the server and the directory of the blobs.
func startBlobstore() (server *httptest.Server, dir string) {
	GinkgoHelper()
	dir = GinkgoT().TempDir()
	Expect(os.Mkdir(filepath.Join(dir, "0f"), 0o755)).To(Succeed()) // directory of a blob with the name "blob"
	files := &webdav.Handler{FileSystem: webdav.Dir(dir), LockSystem: webdav.NewMemLS()}
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "agent" || password != "secret" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	DeferCleanup(server.Close)
	return server, dir
}

// writeConfig writes the configuration file like the agent, and returns its path.
func writeConfig(server *httptest.Server, password string) string {
	GinkgoHelper()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	content, err := json.Marshal(map[string]any{"endpoint": server.URL, "user": "agent", "password": password,
		"tls": map[string]any{"cert": map[string]any{"ca": ca}}})
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), "config.json")
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}

var _ = Describe("bosh-blobstore-dav", func() {
	It("stores a blob at the same path as davcli, finds it, fetches it and deletes it", func(ctx context.Context) {
		server, dir := startBlobstore()
		config := writeConfig(server, "secret")
		source, target := filepath.Join(GinkgoT().TempDir(), "source"), filepath.Join(GinkgoT().TempDir(), "target")
		Expect(os.WriteFile(source, []byte("content"), 0o600)).To(Succeed())
		Expect(dav.Run(ctx, []string{"-c", config, "put", source, "blob"})).To(Succeed())
		Expect(os.ReadFile(filepath.Join(dir, "0f", "blob"))).To(Equal([]byte("content")))
		Expect(dav.Run(ctx, []string{"-c", config, "exists", "blob"})).To(Succeed())
		Expect(dav.Run(ctx, []string{"-c", config, "get", "blob", target})).To(Succeed())
		Expect(os.ReadFile(target)).To(Equal([]byte("content")))
		Expect(dav.Run(ctx, []string{"-c", config, "delete", "blob"})).To(Succeed())
		Expect(dav.Run(ctx, []string{"-c", config, "exists", "blob"})).To(MatchError(ContainSubstring("404")))
	})

	It("fails with a wrong password, and leaves no file", func(ctx context.Context) {
		server, _ := startBlobstore()
		target := filepath.Join(GinkgoT().TempDir(), "target")
		Expect(dav.Run(ctx, []string{"-c", writeConfig(server, "guess"), "get", "blob", target})).To(MatchError(ContainSubstring("401")))
		Expect(target).NotTo(BeAnExistingFile())
	})

	It("retries requests when the server fails", func(ctx context.Context) {
		var requests atomic.Int32
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests.Add(1) < 3 {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
		}))
		DeferCleanup(server.Close)
		Expect(dav.Run(ctx, []string{"-c", writeConfig(server, "secret"), "exists", "blob"})).To(Succeed())
		Expect(requests.Load()).To(Equal(int32(3)))
	})

	It("rejects an unknown command", func(ctx context.Context) {
		server, _ := startBlobstore()
		Expect(dav.Run(ctx, []string{"-c", writeConfig(server, "secret"), "sign", "blob"})).
			To(MatchError(ContainSubstring("unknown command: sign blob")))
	})
})

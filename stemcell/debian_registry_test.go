package stemcell_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
)

// The registry that operators are most likely to have is Docker's, which Debian packages. scripts/test
// gets it where it can; without it these specs do not exist.
var _ = func() bool {
	if _, err := exec.LookPath("docker-registry"); err == nil {
		Describe("Debian's docker-registry with TLS and basic auth", debianRegistry)
	}
	return true
}()

// dockerRegistry is one that runs.
type dockerRegistry struct {
	host, ca string
	log      *locked
}

// sesame is an htpasswd line: user bosh, password sesame.
const sesame = "bosh:$2b$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n"

// startDockerRegistry runs the program on a free port until the spec ends.
func startDockerRegistry(deletes bool) *dockerRegistry {
	folder := GinkgoT().TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}
	certificate, key := selfSigned()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	registry := &dockerRegistry{host: listener.Addr().String(), ca: certificate, log: &locked{}}
	config := write("config.yml", fmt.Sprintf(`
version: 0.1
log: {accesslog: {disabled: false}, level: info}
storage: {filesystem: {rootdirectory: %s}, delete: {enabled: %t}}
http: {addr: %s, secret: x, tls: {certificate: %s, key: %s}}
auth: {htpasswd: {realm: stemcells, path: %s}}
`, folder, deletes, registry.host, write("crt.pem", certificate), write("key.pem", key), write("htpasswd", sesame)))
	Expect(listener.Close()).To(Succeed())

	program := exec.Command("docker-registry", "serve", config)
	program.Stdout, program.Stderr = registry.log, registry.log
	Expect(program.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(certificate))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	Eventually(func() error {
		response, err := client.Get("https://" + registry.host + "/v2/")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	return registry
}

func (r *dockerRegistry) store(change ...func(*stemcell.Registry)) stemcell.Store {
	store, _ := storeWith(stemcell.Registry{
		Repository: r.host + "/bosh/stemcells", Username: "bosh", Password: "sesame", CA: r.ca,
	}, change...)
	return store
}

func debianRegistry() {
	It("takes a stemcell once, gives it back, and deletes it", func(ctx SpecContext) {
		registry := startDockerRegistry(true)
		store, path := registry.store(), fileWith(stemcells.Jammy.Image())
		cid, err := store.Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		uploads := strings.Count(registry.log.String(), "http.request.method=PATCH")
		Expect(store.Push(ctx, path, jammy, nil)).To(Equal(cid))
		Expect(strings.Count(registry.log.String(), "http.request.method=PATCH")).To(Equal(uploads))

		pinned := stemcell.Properties{ImageReference: strings.TrimPrefix(cid, "heavy://")}
		Expect(store.Pin(ctx, pinned)).To(Equal(pinned.ImageReference))
		Expect(store.Delete(ctx, cid)).To(Succeed())
		_, err = store.Pin(ctx, pinned)
		Expect(err).To(MatchError(stemcell.ErrNotFound))
		Expect(store.Delete(ctx, cid)).To(Succeed())
		Expect(store.Push(ctx, path, jammy, nil)).To(Equal(cid))
	})

	It("is explained when it denies, is not trusted, or does not delete", func(ctx SpecContext) {
		registry, path := startDockerRegistry(false), fileWith(stemcells.Jammy.Image())
		_, err := registry.store(func(r *stemcell.Registry) { r.Password = "wrong" }).Push(ctx, path, jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrDenied))
		_, err = registry.store(func(r *stemcell.Registry) { r.CA, _ = selfSigned() }).Push(ctx, path, jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		_, err = registry.store().Push(ctx, fileWith(stemcells.Jammy.Image()[:5000]), jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		cid, err := registry.store().Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(registry.store().Delete(ctx, cid)).To(MatchError(stemcell.ErrUndeletable))
	})
}

// selfSigned is a certificate for 127.0.0.1 and its key, as PEM.
func selfSigned() (certificate, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "stemcells"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// locked is a buffer that a process may write while a spec reads.
type locked struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(p)
}

func (l *locked) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.String()
}

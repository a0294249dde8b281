package stemcells

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/onsi/gomega/gbytes"

	"bosh-kubernetes-cpi/test/harness/authority"
)

// DebianProgram is the program of Docker's registry in Debian's package. Operators most likely use this registry.
const DebianProgram = "docker-registry"

// The account in Debian's registry, and its line in the htpasswd file.
const (
	DebianUsername = "bosh"
	DebianPassword = "sesame"
	debianAccount  = "bosh:$2b$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n"
)

// DebianRegistry is a process that runs Debian's registry on loopback, with TLS and basic authentication.
type DebianRegistry struct {
	host, ca string
	program  *exec.Cmd
	log      *gbytes.Buffer
}

// StartDebianRegistry starts the registry with its files in dir, and waits until it responds. allowDelete enables the deletion of
// images. The caller must close the registry.
func StartDebianRegistry(ctx context.Context, dir string, allowDelete bool) (*DebianRegistry, error) {
	issuer, err := authority.New()
	if err != nil {
		return nil, err
	}
	pair, err := issuer.Issue(pkix.Name{CommonName: "stemcells"}, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	host, err := freeAddress()
	if err != nil {
		return nil, err
	}
	registry := &DebianRegistry{host: host, ca: issuer.Certificate, log: gbytes.NewBuffer()}
	for name, content := range map[string]string{
		"crt.pem": pair.Certificate, "key.pem": pair.Key, "htpasswd": debianAccount,
		"config.yml": fmt.Sprintf(debianConfig, dir, allowDelete, host),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	registry.program = exec.Command(DebianProgram, "serve", filepath.Join(dir, "config.yml"))
	registry.program.Stdout, registry.program.Stderr = registry.log, registry.log
	if err := registry.program.Start(); err != nil {
		return nil, err
	}
	if err := registry.waitReady(ctx); err != nil {
		registry.Close()
		return nil, err
	}
	return registry, nil
}

const debianConfig = `
version: 0.1
log: {accesslog: {disabled: false}, level: info}
storage: {filesystem: {rootdirectory: %[1]s}, delete: {enabled: %[2]t}}
http: {addr: %[3]s, secret: x, tls: {certificate: %[1]s/crt.pem, key: %[1]s/key.pem}}
auth: {htpasswd: {realm: stemcells, path: %[1]s/htpasswd}}
`

// freeAddress returns an address on loopback with a free port.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (d *DebianRegistry) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(d.ca))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+d.host+"/v2/", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not respond: %w; its log:\n%s", DebianProgram, err, d.log.Contents())
		case <-ticker.C:
		}
	}
}

// Close stops the registry.
func (d *DebianRegistry) Close() {
	_ = d.program.Process.Kill()
	_ = d.program.Wait()
}

// Host returns the registry's address in the names of images.
func (d *DebianRegistry) Host() string { return d.host }

// CA returns the registry's certificate as PEM.
func (d *DebianRegistry) CA() string { return d.ca }

var accessLinePattern = regexp.MustCompile(`"(GET|HEAD|POST|PATCH|PUT|DELETE) (/v2/[^ ?"]*)[^"]* HTTP/`)

// Requests returns the methods and paths of all previous requests, like Registry.Requests. The registry logs a request after the
// response, so the last request may appear late.
func (d *DebianRegistry) Requests() []string {
	var requests []string
	for _, match := range accessLinePattern.FindAllStringSubmatch(string(d.log.Contents()), -1) {
		requests = append(requests, match[1]+" "+match[2])
	}
	return requests
}

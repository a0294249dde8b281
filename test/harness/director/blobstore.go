package director

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // part of the paths of blobs
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/webdav"

	"bosh-kubernetes-cpi/test/harness/authority"
)

// Blobstore is a director's blobstore: a WebDAV server with a user and a password.
type Blobstore struct {
	// Options is the value of agent.blobstore in the CPI's configuration.
	Options map[string]any

	dir    string
	server *http.Server
}

const blobstoreUser, blobstorePassword = "agent", "agent-password"

// StartBlobstore starts a server on this address that stores blobs in dir. The caller must close it.
func StartBlobstore(issuer *authority.Authority, address, dir string) (*Blobstore, error) {
	pair, err := issuer.Issue(pkix.Name{CommonName: "blobstore"}, address)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair([]byte(pair.Certificate), []byte(pair.Key))
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(address, "0"), &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		return nil, fmt.Errorf("start blobstore: %w", err)
	}
	b := &Blobstore{dir: dir, server: &http.Server{ReadHeaderTimeout: 10 * time.Second}}
	b.server.Handler = b.authenticate(&webdav.Handler{FileSystem: webdav.Dir(dir), LockSystem: webdav.NewMemLS()})
	b.Options = map[string]any{"provider": "dav", "options": map[string]any{
		"endpoint": "https://" + listener.Addr().String(), "user": blobstoreUser, "password": blobstorePassword,
		"tls": map[string]any{"cert": map[string]any{"ca": issuer.Certificate}},
	}}
	go func() { _ = b.server.Serve(listener) }()
	return b, nil
}

// authenticate checks the credentials of requests. Like a director's blobstore, it creates the directory of a new blob.
func (b *Blobstore) authenticate(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != blobstoreUser || subtle.ConstantTimeCompare([]byte(password), []byte(blobstorePassword)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="blobstore"`)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut {
			if err := os.MkdirAll(filepath.Join(b.dir, filepath.Dir(filepath.Clean(r.URL.Path))), 0o755); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		files.ServeHTTP(w, r)
	})
}

// Close stops the server.
func (b *Blobstore) Close() { _ = b.server.Close() }

func (b *Blobstore) blobPath(id string) string {
	sum := sha1.Sum([]byte(id)) //nolint:gosec // see above
	return filepath.Join(b.dir, hex.EncodeToString(sum[:1]), id)
}

// Put stores a blob, and returns its ID and SHA-1 for messages to agents.
func (b *Blobstore) Put(content []byte) (id, digest string, err error) {
	id = rand.Text()
	if err := os.MkdirAll(filepath.Dir(b.blobPath(id)), 0o755); err != nil {
		return "", "", err
	}
	sum := sha1.Sum(content)                                                            //nolint:gosec // as directors send it
	return id, hex.EncodeToString(sum[:]), os.WriteFile(b.blobPath(id), content, 0o644) //nolint:gosec // a blob of a test
}

// Get returns a blob.
func (b *Blobstore) Get(id string) ([]byte, error) { return os.ReadFile(b.blobPath(id)) }

package stemcells

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is go-containerregistry's in-memory registry on loopback.
type Registry struct {
	// Username and Password are required by basic authentication, if they are set.
	Username, Password string
	// Token is required as a bearer token, if it is set. The registry's token server issues it to Username with Password.
	Token string

	server *httptest.Server
	inner  http.Handler

	mutex    sync.Mutex
	fault    Fault
	requests []string
	uploads  map[string]int
}

// Fault handles a request instead of the registry and returns true, or returns false for the registry to handle it.
type Fault func(http.ResponseWriter, *http.Request) bool

// NewRegistry starts a registry. The caller must close it.
func NewRegistry(withTLS bool) *Registry {
	r := &Registry{
		inner:   registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		uploads: map[string]int{},
	}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if withTLS {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	return r
}

// SetFault sets the fault for all requests from now on, or none if it is nil.
func (r *Registry) SetFault(fault Fault) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.fault = fault
}

// Close stops the registry.
func (r *Registry) Close() { r.server.Close() }

// Host returns the registry's address in the names of images.
func (r *Registry) Host() string { return r.server.Listener.Addr().String() }

// CA returns the certificate of a registry with TLS as PEM.
func (r *Registry) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}))
}

// Client returns a client that trusts the registry's certificate.
func (r *Registry) Client() *http.Client { return r.server.Client() }

// Requests returns the methods and paths of all previous requests.
func (r *Registry) Requests() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string{}, r.requests...)
}

// UploadCounts returns the number of completed uploads of each blob, by digest.
func (r *Registry) UploadCounts() map[string]int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return maps.Clone(r.uploads)
}

// CountManifests counts the requests that put a manifest.
func (r *Registry) CountManifests() int {
	n := 0
	for _, request := range r.Requests() {
		if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "/manifests/") {
			n++
		}
	}
	return n
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	r.requests = append(r.requests, request.Method+" "+request.URL.Path)
	fault := r.fault
	r.mutex.Unlock()
	if request.URL.Path == "/token" {
		r.serveToken(w, request)
		return
	}
	if !r.authenticate(w, request) {
		return
	}
	if fault != nil && fault(w, request) {
		return
	}
	if digest := request.URL.Query().Get("digest"); request.Method == http.MethodPut && digest != "" {
		r.mutex.Lock()
		r.uploads[digest]++
		r.mutex.Unlock()
	}
	r.inner.ServeHTTP(w, request)
}

func (r *Registry) authenticate(w http.ResponseWriter, request *http.Request) bool {
	if r.Username == "" {
		return true
	}
	if r.Token != "" {
		if request.Header.Get("Authorization") == "Bearer "+r.Token {
			return true
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=%q", r.server.URL+"/token", r.Host()))
	} else {
		if r.validBasicAuth(request) {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="stemcells"`)
	}
	WriteError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	return false
}

func (r *Registry) validBasicAuth(request *http.Request) bool {
	username, password, ok := request.BasicAuth()
	return ok && username == r.Username && password == r.Password
}

func (r *Registry) serveToken(w http.ResponseWriter, request *http.Request) {
	if !r.validBasicAuth(request) {
		WriteError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"token": r.Token})
}

// WriteError writes an error response in a registry's format.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// RejectMethod returns a Fault that responds with the status to requests with this method.
func RejectMethod(method string, status int, code string) Fault {
	return func(w http.ResponseWriter, request *http.Request) bool {
		if request.Method != method {
			return false
		}
		_, _ = io.Copy(io.Discard, request.Body)
		WriteError(w, status, code, http.StatusText(status))
		return true
	}
}

// BreakUploads returns a Fault that closes the connection in the middle of an upload, this number of times.
func BreakUploads(times int) Fault {
	var mutex sync.Mutex
	return func(_ http.ResponseWriter, request *http.Request) bool {
		mutex.Lock()
		defer mutex.Unlock()
		if request.Method != http.MethodPatch || times == 0 {
			return false
		}
		times--
		_, _ = io.CopyN(io.Discard, request.Body, request.ContentLength/2)
		panic(http.ErrAbortHandler) // net/http closes the connection without a response
	}
}

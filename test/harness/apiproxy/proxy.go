// Package apiproxy is a proxy between the CPI and a real API server that counts requests and injects faults.
package apiproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
)

// Proxy is a server on loopback that forwards requests to an API server.
type Proxy struct {
	FaultHandler
	server *httptest.Server
	strict bool

	mutex       sync.Mutex
	token       string // if empty, the credentials of requests are forwarded
	permissions map[string]bool
	targets     []*url.URL
	forwarded   int // requests
}

// New starts a proxy for the cluster of a kubeconfig file. It rejects requests with resourceVersion=0, because an API server may respond
// with outdated objects from its cache.
func New(kubeconfig string) (*Proxy, error) {
	p, err := newProxy(kubeconfig)
	if err == nil {
		p.server.Start()
	}
	return p, err
}

// NewStrict is like New, but the proxy also rejects requests without a precondition that change or delete an object.
func NewStrict(kubeconfig string) (*Proxy, error) {
	p, err := newProxy(kubeconfig)
	if err == nil {
		p.strict = true
		p.server.Start()
	}
	return p, err
}

// NewTLS is like New, but with TLS, over which clients send credentials. The proxy forwards them.
func NewTLS(kubeconfig string) (*Proxy, error) {
	p, err := newProxy(kubeconfig)
	if err == nil {
		p.token = ""
		p.server.EnableHTTP2 = true
		p.server.StartTLS()
	}
	return p, err
}

func newProxy(kubeconfig string) (*Proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 100}
	p := &Proxy{token: config.BearerToken, permissions: map[string]bool{}, targets: []*url.URL{target}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.nextTarget())
			// A client sends no credentials over plain HTTP.
			if token := p.authorize(r.In); token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		Transport:     transport,
		FlushInterval: -1, // flush at once, for watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Next = forward
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resourceVersion") == "0" {
			http.Error(w, "requests with resourceVersion=0 may return outdated objects", http.StatusBadRequest)
			return
		}
		if reason := missingPrecondition(r); p.strict && reason != "" {
			http.Error(w, reason, http.StatusBadRequest)
			return
		}
		p.ServeHTTP(w, r)
	}))
	return p, nil
}

// SetToken sets the token for forwarded requests.
func (p *Proxy) SetToken(token string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.token = token
}

// Token returns the token for forwarded requests.
func (p *Proxy) Token() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.token
}

// SetBackendPorts distributes requests to the API servers on these loopback ports, like a load balancer.
func (p *Proxy) SetBackendPorts(ports ...int) {
	var targets []*url.URL
	for _, port := range ports {
		targets = append(targets, &url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.targets = targets
}

// nextTarget returns the API server for the next request.
func (p *Proxy) nextTarget() *url.URL {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.forwarded++
	return p.targets[p.forwarded%len(p.targets)]
}

// Permissions returns the permissions required by all previous requests, as "verb resource", for example "patch pods/ephemeralcontainers".
func (p *Proxy) Permissions() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Sorted(maps.Keys(p.permissions))
}

// authorize records the permission required by the request, and returns the token for the request.
func (p *Proxy) authorize(r *http.Request) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.permissions[requiredPermission(r)] = true
	return p.token
}

// requiredPermission returns the permission that Kubernetes checks for the request.
func requiredPermission(r *http.Request) string {
	verb, resource, _ := ParseRequest(r)
	return verb + " " + resource
}

// Close stops the proxy and closes its connections.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// BreakConnections breaks all existing connections, and all new ones until the next Reset, like a network outage.
func (p *Proxy) BreakConnections() {
	p.Reset(func(int, http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	p.server.CloseClientConnections()
}

// URL returns the URL of the proxy.
func (p *Proxy) URL() string { return p.server.URL }

// CACertificate returns the proxy's TLS certificate as PEM.
func (p *Proxy) CACertificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// WriteKubeconfig writes a kubeconfig file for the cluster through the proxy.
func (p *Proxy) WriteKubeconfig(path, namespace string) error {
	content, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "proxy",
		"clusters": []any{map[string]any{"name": "proxy", "cluster": map[string]any{"server": p.server.URL}}},
		"users":    []any{map[string]any{"name": "proxy", "user": map[string]any{}}},
		"contexts": []any{map[string]any{"name": "proxy", "context": map[string]any{"cluster": "proxy", "user": "proxy", "namespace": namespace}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

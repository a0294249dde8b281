// Package apiproxy stands between the CPI and a real API server: it counts requests, and makes things
// go wrong at a chosen one, which a real server cannot be asked to do.
package apiproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
)

// Proxy is a server on loopback that passes requests on to an API server.
type Proxy struct {
	server *httptest.Server

	mutex    sync.Mutex
	requests []string
	fault    Fault
	token    string // none: requests come with credentials of their own
	rights   map[string]bool
}

// Fault sees each request before it is passed on, with its number since the last Reset, starting at 1.
// It passes it on by calling next, or does something else.
type Fault func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)

// New starts a proxy for the cluster of a kubeconfig file. It refuses requests that may be answered with what is not so any more.
func New(kubeconfig string) (*Proxy, error) {
	p, err := newProxy(kubeconfig)
	if err == nil {
		p.server.Start()
	}
	return p, err
}

// NewSecure is New over TLS, over which clients send credentials: those are passed on.
func NewSecure(kubeconfig string) (*Proxy, error) {
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
	p := &Proxy{token: config.BearerToken, rights: map[string]bool{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// A client sends no credentials over plain HTTP.
			if token := p.authorize(r.In); token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		Transport:     transport,
		FlushInterval: -1, // watches are streams
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resourceVersion") == "0" {
			http.Error(w, "whatever an API server remembers, however old, is nothing to go by", http.StatusBadRequest)
			return
		}
		p.mutex.Lock()
		p.requests = append(p.requests, describe(r))
		n, fault := len(p.requests), p.fault
		p.mutex.Unlock()
		if fault == nil {
			forward.ServeHTTP(w, r)
			return
		}
		fault(n, w, r, forward)
	}))
	return p, nil
}

// describe names a request as Kubernetes does: verb and path, a watch by name.
func describe(r *http.Request) string {
	verb := r.Method
	if watches(r) {
		verb = "WATCH"
	}
	return verb + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")
}

// As passes requests on with another user's token.
func (p *Proxy) As(token string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.token = token
}

// Rights are those that all requests so far needed, as "verb resource", for example "patch
// pods/ephemeralcontainers".
func (p *Proxy) Rights() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Sorted(maps.Keys(p.rights))
}

// authorize notes the right that the request needs and returns the token to send it with.
func (p *Proxy) authorize(r *http.Request) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.rights[right(r)] = true
	return p.token
}

// right returns what Kubernetes' authorizer is asked.
func right(r *http.Request) string {
	verb, resource, _ := Parse(r)
	return verb + " " + resource
}

// Close stops the proxy and breaks its connections.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Cut breaks all connections, and each that is made until the next Reset, as a network does that is down.
func (p *Proxy) Cut() {
	p.Reset(func(int, http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	p.server.CloseClientConnections()
}

// Reset forgets the requests seen and sets what goes wrong from now on; nil for nothing.
func (p *Proxy) Reset(fault Fault) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.requests, p.fault = nil, fault
}

// Requests are those seen since the last Reset.
func (p *Proxy) Requests() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]string(nil), p.requests...)
}

// URL is where the proxy answers.
func (p *Proxy) URL() string { return p.server.URL }

// Authority is the certificate, as PEM, by which a secure proxy is known.
func (p *Proxy) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Kubeconfig writes a kubeconfig file for the cluster through the proxy.
func (p *Proxy) Kubeconfig(path, namespace string) error {
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

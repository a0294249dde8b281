// Package apiproxy stands between the CPI and a real API server: it counts requests, and makes things
// go wrong at a chosen one, which a real server cannot be asked to do.
package apiproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
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
	token    string
	rights   map[string]bool
}

// Fault sees each request before it is passed on, with its number since the last Reset, starting at 1.
// It passes it on by calling next, or does something else.
type Fault func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)

// New starts a proxy for the cluster of a kubeconfig file.
func New(kubeconfig string) (*Proxy, error) {
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
			r.Out.Header.Set("Authorization", "Bearer "+p.authorize(r.In))
		},
		Transport:     transport,
		FlushInterval: -1, // watches are streams
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	if r.URL.Query().Get("watch") != "" {
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

// right returns what Kubernetes' authorizer is asked: paths are /api/VERSION or /apis/GROUP/VERSION,
// then /namespaces/NAMESPACE for what belongs to one, then /RESOURCE[/NAME[/SUBRESOURCE]].
func right(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	skip := 2
	if parts[0] == "apis" {
		skip = 3
	}
	if parts = parts[min(skip, len(parts)-1):]; parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource, named := parts[0], len(parts) > 1
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	switch {
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	case verb == "get" && !named:
		verb = "list"
	}
	return verb + " " + resource
}

// Close stops the proxy and breaks its connections.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
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

// Unavailable answers request n with a 503 that carries no Retry-After, once.
func Unavailable(n int) Fault {
	return at(n, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"unavailable"}`)
	})
}

// Foreign answers every request with the code and a text that is not of Kubernetes, as a proxy does that
// has lost its API server.
func Foreign(code int) Fault {
	return func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "no such backend", code)
	}
}

// ResetBefore breaks the connection instead of passing request n on.
func ResetBefore(n int) Fault {
	return at(n, func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
}

// ResetAfter passes request n on and breaks the connection instead of answering.
func ResetAfter(n int) Fault {
	return at(n, func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	})
}

// CutShort passes request n on and breaks the connection in the middle of the answer's body.
func CutShort(n int) Fault {
	return at(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "" {
			panic(http.ErrAbortHandler)
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		body := whole.Body.Bytes()
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(whole.Code)
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	})
}

// Before does something and passes request n on only when it returns true; otherwise the connection
// breaks.
func Before(n int, do func() bool) Fault {
	return at(n, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !do() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// After passes request n on, does something, and breaks the connection instead of answering.
func After(n int, do func()) Fault {
	return at(n, func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		do()
		panic(http.ErrAbortHandler)
	})
}

func at(n int, do func(http.ResponseWriter, *http.Request, http.Handler)) Fault {
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i != n {
			next.ServeHTTP(w, r)
			return
		}
		do(w, r, next)
	}
}

package apiproxy

import (
	"net/http"
	"strings"
	"sync"
)

// Fault sees each request before it is passed on, with its number since the last Reset, starting at 1.
// It passes it on by calling next, or does something else.
type Fault func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)

// Numbered counts the requests to a handler, and lets things go wrong at a chosen one.
type Numbered struct {
	Next http.Handler

	mutex    sync.Mutex
	requests []string
	fault    Fault
}

func (n *Numbered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mutex.Lock()
	n.requests = append(n.requests, describe(r))
	number, fault := len(n.requests), n.fault
	n.mutex.Unlock()
	if fault == nil {
		n.Next.ServeHTTP(w, r)
		return
	}
	fault(number, w, r, n.Next)
}

// describe names a request as Kubernetes does: verb and path, a watch by name.
func describe(r *http.Request) string {
	verb := r.Method
	if watches(r) {
		verb = "WATCH"
	}
	return verb + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")
}

// Reset forgets the requests seen and sets what goes wrong from now on; nil for nothing.
func (n *Numbered) Reset(fault Fault) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.requests, n.fault = nil, fault
}

// Requests are those seen since the last Reset.
func (n *Numbered) Requests() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return append([]string(nil), n.requests...)
}

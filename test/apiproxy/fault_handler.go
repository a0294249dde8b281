package apiproxy

import (
	"net/http"
	"strings"
	"sync"
)

// Fault sees each request before it is passed on, with its number since the last Reset, starting at 1.
// It passes it on by calling next, or does something else.
type Fault func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)

// FaultHandler counts the requests to a handler, and lets things go wrong at a chosen one.
type FaultHandler struct {
	Next http.Handler

	mutex    sync.Mutex
	requests []string
	fault    Fault
}

func (h *FaultHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mutex.Lock()
	h.requests = append(h.requests, describe(r))
	number, fault := len(h.requests), h.fault
	h.mutex.Unlock()
	if fault == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	fault(number, w, r, h.Next)
}

// describe names a request as Kubernetes does: verb and path, a watch by name.
func describe(r *http.Request) string {
	verb := r.Method
	if isWatch(r) {
		verb = "WATCH"
	}
	return verb + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")
}

// Reset forgets the requests seen and sets what goes wrong from now on; nil for nothing.
func (h *FaultHandler) Reset(fault Fault) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.requests, h.fault = nil, fault
}

// Requests are those seen since the last Reset.
func (h *FaultHandler) Requests() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]string(nil), h.requests...)
}

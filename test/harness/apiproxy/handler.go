package apiproxy

import (
	"net/http"
	"strings"
	"sync"
)

// Fault handles one request: it calls next to forward the request, or injects a fault. n numbers the requests since the last Reset,
// starting at 1.
type Fault func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)

// FaultHandler records the requests to a handler, and injects a fault.
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

// describe returns the request's method, or WATCH for a watch, and its path.
func describe(r *http.Request) string {
	verb := r.Method
	if isWatch(r) {
		verb = "WATCH"
	}
	return verb + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")
}

// Reset forgets the previous requests, and sets the fault for the next ones; nil means no fault.
func (h *FaultHandler) Reset(fault Fault) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.requests, h.fault = nil, fault
}

// Requests returns the requests since the last Reset.
func (h *FaultHandler) Requests() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]string(nil), h.requests...)
}

// Package counted watches the requests that pass a proxy: how many there are, how much is answered, and whether one asks for all
// that there is.
package counted

import (
	"net/http"
	"sync"

	"bosh-kubernetes-cpi/test/apiproxy"
)

// Requests are those that have passed. It is ready for use as it is.
type Requests struct {
	mutex      sync.Mutex
	sent       []string
	unfiltered []string
	bytes      int64
}

// Fault notes each request and passes it on.
func (r *Requests) Fault() apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, request *http.Request, next http.Handler) {
		r.note(request)
		next.ServeHTTP(&writer{ResponseWriter: w, to: r}, request)
	}
}

// Sent are the requests so far: verb and kind, with the subresource.
func (r *Requests) Sent() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.sent...)
}

// Unfiltered are lists and watches of all objects of a kind, without a label or a field to select them by.
func (r *Requests) Unfiltered() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.unfiltered...)
}

// Bytes are those of all answers' bodies so far.
func (r *Requests) Bytes() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.bytes
}

func (r *Requests) note(request *http.Request) {
	verb, kind, named := apiproxy.Parse(request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sent = append(r.sent, verb+" "+kind)
	query := request.URL.Query()
	if !named && (verb == "list" || verb == "watch") && query.Get("labelSelector") == "" && query.Get("fieldSelector") == "" {
		r.unfiltered = append(r.unfiltered, verb+" "+request.URL.RequestURI())
	}
}

// writer counts what is written to it.
type writer struct {
	http.ResponseWriter
	to *Requests
}

func (w *writer) Write(body []byte) (int, error) {
	n, err := w.ResponseWriter.Write(body)
	w.to.mutex.Lock()
	defer w.to.mutex.Unlock()
	w.to.bytes += int64(n)
	return n, err
}

// Unwrap lets streams be flushed.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

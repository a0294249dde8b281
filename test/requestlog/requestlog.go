// Package requestlog watches the requests that pass a proxy: how many there are, how much is answered, and whether one asks for all
// that there is.
package requestlog

import (
	"net/http"
	"sync"

	"bosh-kubernetes-cpi/test/apiproxy"
)

// Recorder are those that have passed. It is ready for use as it is.
type Recorder struct {
	mutex      sync.Mutex
	sent       []string
	unfiltered []string
	bytes      int64
}

// Fault notes each request and passes it on.
func (r *Recorder) Fault() apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, request *http.Request, next http.Handler) {
		r.record(request)
		next.ServeHTTP(&countingWriter{ResponseWriter: w, recorder: r}, request)
	}
}

// Sent are the requests so far: verb and kind, with the subresource.
func (r *Recorder) Sent() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.sent...)
}

// Unfiltered are lists and watches of all objects of a kind, without a label or a field to select them by.
func (r *Recorder) Unfiltered() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.unfiltered...)
}

// Bytes are those of all answers' bodies so far.
func (r *Recorder) Bytes() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.bytes
}

func (r *Recorder) record(request *http.Request) {
	verb, kind, named := apiproxy.ParseRequest(request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sent = append(r.sent, verb+" "+kind)
	query := request.URL.Query()
	if !named && (verb == "list" || verb == "watch") && query.Get("labelSelector") == "" && query.Get("fieldSelector") == "" {
		r.unfiltered = append(r.unfiltered, verb+" "+request.URL.RequestURI())
	}
}

// countingWriter counts what is written to it.
type countingWriter struct {
	http.ResponseWriter
	recorder *Recorder
}

func (w *countingWriter) Write(body []byte) (int, error) {
	n, err := w.ResponseWriter.Write(body)
	w.recorder.mutex.Lock()
	defer w.recorder.mutex.Unlock()
	w.recorder.bytes += int64(n)
	return n, err
}

// Unwrap lets streams be flushed.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

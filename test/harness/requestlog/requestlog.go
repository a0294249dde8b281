// Package requestlog records the requests that pass through a proxy, their response sizes, and any unfiltered lists and watches.
package requestlog

import (
	"net/http"
	"sync"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// Recorder records requests. The zero value is ready to use.
type Recorder struct {
	mutex      sync.Mutex
	requests   []string
	unfiltered []string
	bytes      int64
}

// Middleware returns an apiproxy.Fault that only records each request, and forwards it unchanged.
func (r *Recorder) Middleware() apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, request *http.Request, next http.Handler) {
		r.record(request)
		next.ServeHTTP(&countingWriter{ResponseWriter: w, recorder: r}, request)
	}
}

// Requests returns the requests so far, each as "VERB RESOURCE" or "VERB RESOURCE/SUBRESOURCE".
func (r *Recorder) Requests() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.requests...)
}

// Unfiltered returns the lists and watches so far that select objects neither by label nor by field.
func (r *Recorder) Unfiltered() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.unfiltered...)
}

// Bytes returns the size of all response bodies so far.
func (r *Recorder) Bytes() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.bytes
}

func (r *Recorder) record(request *http.Request) {
	verb, resource, named := apiproxy.ParseRequest(request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.requests = append(r.requests, verb+" "+resource)
	query := request.URL.Query()
	if !named && (verb == "list" || verb == "watch") && query.Get("labelSelector") == "" && query.Get("fieldSelector") == "" {
		r.unfiltered = append(r.unfiltered, verb+" "+request.URL.RequestURI())
	}
}

// countingWriter adds the size of each write to the recorder.
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

// Unwrap allows http.ResponseController to flush streams.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

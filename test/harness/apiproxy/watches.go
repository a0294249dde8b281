package apiproxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// isWatch reports whether the request is a watch.
func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// streamFunc forwards the events of a watch, and can change them. Each event is a line of JSON. The watch is closed when it returns.
type streamFunc func(ctx context.Context, events <-chan []byte, send func([]byte))

// ClosedWatch closes watch n right after a successful response.
func ClosedWatch(n int) Fault {
	return onWatch(n, func(context.Context, <-chan []byte, func([]byte)) {})
}

// ShortWatches closes each watch after limit, as load balancers close connections.
func ShortWatches(limit time.Duration) Fault {
	return onEveryWatch(func(ctx context.Context, events <-chan []byte, send func([]byte)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		forwardEvents(ctx, events, send)
	})
}

// ExpiredWatch reports to watch n that its resourceVersion is too old.
func ExpiredWatch(n int) Fault {
	return onWatch(n, func(_ context.Context, _ <-chan []byte, send func([]byte)) {
		send([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}`))
	})
}

// SilentWatch drops all events of watch n, and closes it after limit.
func SilentWatch(limit time.Duration) func(n int) Fault {
	return func(n int) Fault {
		return onWatch(n, func(ctx context.Context, events <-chan []byte, _ func([]byte)) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			forwardEvents(ctx, events, func([]byte) {})
		})
	}
}

// DuplicatedEvents sends each event of each watch twice.
func DuplicatedEvents(int) Fault {
	return onEveryWatch(func(ctx context.Context, events <-chan []byte, send func([]byte)) {
		forwardEvents(ctx, events, func(event []byte) { send(event); send(event) })
	})
}

// forwardEvents forwards all events until the watch is closed or the context is canceled.
func forwardEvents(ctx context.Context, events <-chan []byte, send func([]byte)) {
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				return
			}
			send(event)
		}
	}
}

func onWatch(n int, transform streamFunc) Fault {
	inject := onEveryWatch(transform)
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i != n {
			next.ServeHTTP(w, r)
			return
		}
		inject(i, w, r, next)
	}
}

func onEveryWatch(transform streamFunc) Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		relayWatch(w, r, next, transform)
	}
}

// relayWatch forwards a watch through transform. It requests JSON, because all clients understand it and each event is one line.
func relayWatch(w http.ResponseWriter, r *http.Request, next http.Handler, transform streamFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	upstreamRequest := r.Clone(ctx)
	upstreamRequest.Header.Set("Accept", "application/json")
	upstreamRequest.Header.Del("Accept-Encoding")
	upstream := &pipeResponse{header: http.Header{}, started: make(chan int, 1)}
	var body *io.PipeReader
	body, upstream.writer = io.Pipe()
	go func() {
		defer func() { _ = recover(); upstream.closeStream() }() // a reverse proxy aborts when its client disconnects
		next.ServeHTTP(upstream, upstreamRequest)
	}()
	code := <-upstream.started
	w.Header().Set("Content-Type", upstream.header.Get("Content-Type"))
	w.WriteHeader(code)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	if code != http.StatusOK {
		_, _ = io.Copy(w, body)
		return
	}
	transform(ctx, readLines(ctx, body), func(event []byte) { _, _ = fmt.Fprintf(w, "%s\n", event); _ = flush() })
	_ = body.Close()
}

// readLines returns the lines of a body.
func readLines(ctx context.Context, body io.Reader) <-chan []byte {
	events := make(chan []byte)
	go func() {
		defer close(events)
		reader := bufio.NewReader(body)
		for {
			line, err := reader.ReadBytes('\n')
			if event := bytes.TrimSpace(line); len(event) > 0 {
				select {
				case events <- event:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return events
}

// pipeResponse is a response that is read while it is written.
type pipeResponse struct {
	header        http.Header
	writer        *io.PipeWriter
	started       chan int
	headerWritten bool
}

func (p *pipeResponse) Header() http.Header { return p.header }

func (p *pipeResponse) WriteHeader(code int) {
	if !p.headerWritten {
		p.headerWritten = true
		p.started <- code
	}
}

func (p *pipeResponse) Write(part []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.writer.Write(part)
}

func (p *pipeResponse) Flush() { p.WriteHeader(http.StatusOK) }

// closeStream closes the response, even if nothing was written.
func (p *pipeResponse) closeStream() {
	p.WriteHeader(http.StatusBadGateway)
	_ = p.writer.Close()
}

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

// A stream passes the events of a watch on, one JSON document to a line, as it likes. It ends the watch by returning.
type streamFunc func(ctx context.Context, events <-chan []byte, send func([]byte))

// ClosedWatch ends watch n at once, after a good answer.
func ClosedWatch(n int) Fault {
	return onWatch(n, func(context.Context, <-chan []byte, func([]byte)) {})
}

// ShortWatches end each watch after this time, as load balancers do with connections.
func ShortWatches(limit time.Duration) Fault {
	return onEveryWatch(func(ctx context.Context, events <-chan []byte, send func([]byte)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		forwardEvents(ctx, events, send)
	})
}

// ExpiredWatch tells watch n that its resourceVersion is too old.
func ExpiredWatch(n int) Fault {
	return onWatch(n, func(_ context.Context, _ <-chan []byte, send func([]byte)) {
		send([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}`))
	})
}

// SilentWatch keeps all events of watch n for itself, and ends it after this time.
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

// forwardEvents sends all events on until the watch or the context ends.
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

// relayWatch passes a watch on through a stream. It asks for JSON, which all clients understand, and which has its events in lines.
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
		defer func() { _ = recover(); upstream.closeStream() }() // a reverse proxy aborts when its client is gone
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

// readLines hands over the lines of a body.
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

// pipeResponse is an answer that is read while it is written.
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

// closeStream says that nothing more comes, also when nothing came.
func (p *pipeResponse) closeStream() {
	p.WriteHeader(http.StatusBadGateway)
	_ = p.writer.Close()
}

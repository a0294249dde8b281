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

// watches reports whether the request is a watch.
func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// A stream passes the events of a watch on, one JSON document to a line, as it likes. It ends the watch by returning.
type stream func(ctx context.Context, events <-chan []byte, send func([]byte))

// ClosedWatch ends watch n at once, after a good answer.
func ClosedWatch(n int) Fault {
	return streamed(n, func(context.Context, <-chan []byte, func([]byte)) {})
}

// BriefWatches end each watch after this time, as load balancers do with connections.
func BriefWatches(limit time.Duration) Fault {
	return everyStream(func(ctx context.Context, events <-chan []byte, send func([]byte)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		pass(ctx, events, send)
	})
}

// ExpiredWatch tells watch n that its resourceVersion is too old.
func ExpiredWatch(n int) Fault {
	return streamed(n, func(_ context.Context, _ <-chan []byte, send func([]byte)) {
		send([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}`))
	})
}

// SilentWatch keeps all events of watch n for itself, and ends it after this time.
func SilentWatch(limit time.Duration) func(n int) Fault {
	return func(n int) Fault {
		return streamed(n, func(ctx context.Context, events <-chan []byte, _ func([]byte)) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			pass(ctx, events, func([]byte) {})
		})
	}
}

// Doubled sends each event of each watch twice.
func Doubled(int) Fault {
	return everyStream(func(ctx context.Context, events <-chan []byte, send func([]byte)) {
		pass(ctx, events, func(event []byte) { send(event); send(event) })
	})
}

// pass sends all events on until the watch or the context ends.
func pass(ctx context.Context, events <-chan []byte, send func([]byte)) {
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

func streamed(n int, through stream) Fault {
	every := everyStream(through)
	return func(i int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i != n {
			next.ServeHTTP(w, r)
			return
		}
		every(i, w, r, next)
	}
}

func everyStream(through stream) Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !watches(r) {
			next.ServeHTTP(w, r)
			return
		}
		relay(w, r, next, through)
	}
}

// relay passes a watch on through a stream. It asks for JSON, which all clients understand, and which has its events in lines.
func relay(w http.ResponseWriter, r *http.Request, next http.Handler, through stream) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	asked := r.Clone(ctx)
	asked.Header.Set("Accept", "application/json")
	asked.Header.Del("Accept-Encoding")
	upstream := &lines{header: http.Header{}, started: make(chan int, 1)}
	var body *io.PipeReader
	body, upstream.writer = io.Pipe()
	go func() {
		defer func() { _ = recover(); upstream.end() }() // a reverse proxy aborts when its client is gone
		next.ServeHTTP(upstream, asked)
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
	through(ctx, split(ctx, body), func(event []byte) { _, _ = fmt.Fprintf(w, "%s\n", event); _ = flush() })
	_ = body.Close()
}

// split hands over the lines of a body.
func split(ctx context.Context, body io.Reader) <-chan []byte {
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

// lines is an answer that is read while it is written.
type lines struct {
	header  http.Header
	writer  *io.PipeWriter
	started chan int
	begun   bool
}

func (l *lines) Header() http.Header { return l.header }

func (l *lines) WriteHeader(code int) {
	if !l.begun {
		l.begun = true
		l.started <- code
	}
}

func (l *lines) Write(part []byte) (int, error) {
	l.WriteHeader(http.StatusOK)
	return l.writer.Write(part)
}

func (l *lines) Flush() { l.WriteHeader(http.StatusOK) }

// end says that nothing more comes, also when nothing came.
func (l *lines) end() {
	l.WriteHeader(http.StatusBadGateway)
	_ = l.writer.Close()
}

package memoryapi

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// Config returns the settings to connect to the server, without a network: tests with testing/synctest can use it.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: "http://memory", Transport: s} }

// RoundTrip implements [http.RoundTripper].
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	received := r.WithContext(ctx)
	if received.Body == nil {
		received.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = reader.CloseWithError(context.Cause(ctx)) })
	w := &responseWriter{header: http.Header{}, body: writer, started: make(chan *http.Response, 1)}
	go func() {
		defer func() {
			_ = received.Body.Close()
			switch panicked := recover(); panicked {
			case nil:
				w.WriteHeader(http.StatusOK)
				_ = writer.Close()
			case http.ErrAbortHandler: // the test loses the response
				_ = writer.CloseWithError(io.ErrUnexpectedEOF)
				cancel(io.EOF)
			default:
				panic(panicked)
			}
		}()
		s.ServeHTTP(w, received)
	}()
	select {
	case response := <-w.started:
		response.Request = r
		response.Body = &responseBody{PipeReader: reader, cancel: cancel}
		return response, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// responseWriter sends a response to a client of RoundTrip.
type responseWriter struct {
	header  http.Header
	body    *io.PipeWriter
	begun   bool
	started chan *http.Response
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.started <- &http.Response{StatusCode: status, Header: w.header.Clone(), ContentLength: -1}
}

func (w *responseWriter) Write(content []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(content)
}

// Flush implements [http.Flusher].
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }

// responseBody is the body of a response. The request is canceled when the client closes it, as by a closed connection.
type responseBody struct {
	*io.PipeReader
	cancel context.CancelCauseFunc
}

func (b *responseBody) Close() error {
	defer b.cancel(context.Canceled)
	return b.PipeReader.Close()
}

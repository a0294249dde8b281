package cpi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/rpc"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube/document"
)

// Server serves one request.
type Server struct {
	// Config returns the operator's configuration. If it fails, the response is its error.
	Config func() (Config, error)
	// Log receives the log, which the director keeps in the task's CPI log.
	Log io.Writer
}

// Serve reads one request and writes one response. Errors of the request or the call are in the response; Serve fails only if it
// cannot read or write.
func (s Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return rpc.NewCLI(in, out, &dispatcher{ctx: ctx, server: s}, boshlog.NewLogger(boshlog.LevelNone)).ServeOnce()
}

// dispatcher wraps the dispatcher of bosh-cpi-go: it explains malformed requests, logs calls without secrets, and turns a panic into
// a response.
type dispatcher struct {
	ctx    context.Context
	server Server
}

// request contains the fields of a request that the dispatcher uses.
type request struct {
	Method    string            `json:"method"`
	Arguments []json.RawMessage `json:"arguments"`
	Context   struct {
		RequestID string `json:"request_id"`
	} `json:"context"`
}

// parseRequest returns an error for each request that bosh-cpi-go's dispatcher would reject with an error without a code.
func parseRequest(raw []byte) (request, error) {
	var parsed request
	var dispatched rpc.Request
	for _, into := range []any{&parsed, &dispatched} {
		if err := document.Unmarshal("request", raw, into); err != nil {
			return parsed, err
		}
	}
	switch {
	case parsed.Method == "":
		return parsed, errors.New("request: method is missing")
	case parsed.Arguments == nil:
		return parsed, errors.New("request: arguments are missing")
	}
	return parsed, nil
}

// Dispatch implements rpc.Dispatcher.
func (d *dispatcher) Dispatch(raw []byte) (response []byte) {
	started := time.Now()
	log := slog.New(slog.NewTextHandler(d.server.Log, &slog.HandlerOptions{Level: d.server.level()}))
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("call panicked", "cause", cause, "stack", string(debug.Stack()))
			response = errorResponse(call.CodeInternalError.Errorf("internal error: %v; see the stack trace in the CPI's log", cause))
		}
	}()

	parsed, err := parseRequest(raw)
	if err != nil {
		log.Warn("malformed request", "error", err)
		return errorResponse(call.CodeInvalidRequest.Errorf(
			"%w; a request is a JSON document like {\"method\":\"info\",\"arguments\":[],\"context\":{}}", err))
	}
	log = log.With("method", parsed.Method)
	if parsed.Context.RequestID != "" {
		log = log.With("request_id", parsed.Context.RequestID)
	}
	log.Debug("request", "json", redactedJSON(raw))

	handler := &exchange{ctx: d.ctx, config: d.server.Config, log: log, arguments: parsed.Arguments}
	response = rpc.NewJSONDispatcher(handler, handler, boshlog.NewLogger(boshlog.LevelNone)).Dispatch(raw)
	took := time.Since(started).Round(time.Millisecond)
	if handler.err != nil {
		log.Warn("call failed", "took", took, "code", handler.err.Code(), "error", handler.err)
	} else {
		log.Info("call succeeded", "took", took)
	}
	log.Debug("response", "json", redactedJSON(response))
	return response
}

func (s Server) level() slog.Level {
	config, err := s.Config()
	if err != nil {
		return slog.LevelInfo
	}
	level, err := config.Log.level()
	if err != nil {
		return slog.LevelInfo
	}
	return level
}

// errorResponse returns the response for a request that no method handles.
func errorResponse(failed *call.Error) []byte {
	raw, err := json.Marshal(rpc.Response{Error: &rpc.ResponseError{Type: failed.Type(), Message: failed.WithCode().Error()}})
	if err != nil {
		panic(err) // cannot happen: all fields are strings
	}
	return raw
}

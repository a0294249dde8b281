package cpi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/rpc"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"

	"bosh-kubernetes-cpi/cpi/call"
)

// Server answers one request.
type Server struct {
	// Config returns the operator's configuration; an error in it becomes every request's answer.
	Config func() (Config, error)
	// Log gets what the director keeps in the task's CPI log.
	Log io.Writer
}

// Serve reads one request and writes one response. Whatever is wrong with the request, or happens
// while it is served, is in the response; the error tells only that it could not be read or written.
func (s Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return rpc.NewCLI(in, out, &dispatcher{ctx: ctx, server: s}, boshlog.NewLogger(boshlog.LevelNone)).ServeOnce()
}

// dispatcher decorates bosh-cpi-go's: it explains malformed requests, keeps secrets out of the log,
// and turns a panic into a response.
type dispatcher struct {
	ctx    context.Context
	server Server
}

// request is what the server itself wants to know of a request.
type request struct {
	Method    string            `json:"method"`
	Arguments []json.RawMessage `json:"arguments"`
	Context   struct {
		RequestID string `json:"request_id"`
	} `json:"context"`
}

// Dispatch implements rpc.Dispatcher.
func (d *dispatcher) Dispatch(raw []byte) (response []byte) {
	started := time.Now()
	log := slog.New(slog.NewTextHandler(d.server.Log, &slog.HandlerOptions{Level: d.server.level()}))
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panic", "cause", cause, "stack", string(debug.Stack()))
			response = errorResponse(fmt.Sprintf("internal error: %v; its stack is in the CPI's log", cause))
		}
	}()

	var parsed request
	if err := json.Unmarshal(raw, &parsed); err != nil {
		log.Warn("the request is malformed", "error", err)
		return errorResponse("the request is not one JSON document like {\"method\":\"info\",\"arguments\":[],\"context\":{}}: " + err.Error())
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
		log.Warn("failed", "took", took, "error", handler.err)
	} else {
		log.Info("done", "took", took)
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

// errorResponse is the response to what never became a call.
func errorResponse(message string) []byte {
	raw, err := json.Marshal(rpc.Response{Error: &rpc.ResponseError{Type: string(call.CPIError), Message: message}})
	if err != nil {
		panic(err) // strings alone cannot fail to serialize
	}
	return raw
}

package cpi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/rpc"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
)

// Server answers one request.
type Server struct {
	// Config answers the operator's configuration; an error in it becomes every request's answer.
	Config func() (Config, error)
	// Log gets what the director keeps in the task's CPI log.
	Log io.Writer
}

// request is what the server itself wants to know of a request.
type request struct {
	Method    string            `json:"method"`
	Arguments []json.RawMessage `json:"arguments"`
	Context   struct {
		RequestID string `json:"request_id"`
	} `json:"context"`
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

func (d *dispatcher) Dispatch(raw []byte) (response []byte) {
	started := time.Now()
	log := slog.New(slog.NewTextHandler(d.server.Log, &slog.HandlerOptions{Level: d.server.level()}))
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panic", "cause", cause, "stack", string(debug.Stack()))
			response = failure500(fmt.Sprintf("%v: %v; its stack is in the CPI's log", errPanic, cause))
		}
	}()

	var asked request
	if err := json.Unmarshal(raw, &asked); err != nil {
		log.Warn("the request is malformed", "error", err)
		return failure500("the request is not one JSON document like {\"method\":\"info\",\"arguments\":[],\"context\":{}}: " + err.Error())
	}
	log = log.With("method", asked.Method)
	if asked.Context.RequestID != "" {
		log = log.With("request_id", asked.Context.RequestID)
	}
	log.Debug("request", "json", redacting(raw))

	factory := &actions{ctx: d.ctx, config: d.server.Config, log: log}
	call := &caller{inner: rpc.NewJSONCaller()}
	response = rpc.NewJSONDispatcher(factory, call, boshlog.NewLogger(boshlog.LevelNone)).Dispatch(raw)
	if factory.cancel != nil {
		factory.cancel()
	}
	took := time.Since(started).Round(time.Millisecond)
	if call.failed != nil {
		log.Warn("failed", "took", took, "error", call.failed)
	} else {
		log.Info("done", "took", took)
	}
	log.Debug("response", "json", redacting(response))
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

// failure500 is the response to what never became a call.
func failure500(message string) []byte {
	raw, err := json.Marshal(rpc.Response{Error: &rpc.ResponseError{Type: typeCPIError, Message: message}})
	if err != nil {
		panic(err) // strings alone cannot fail to serialize
	}
	return raw
}

// redacting is a JSON document that is redacted when it is logged, and only then.
type redacting []byte

// LogValue is the document without its secrets.
func (d redacting) LogValue() slog.Value { return slog.StringValue(redact(d)) }

// redact answers the document without what must not be in a log: agents' environments, credentials
// and keys, whatever is below a key that names one.
func redact(raw []byte) string {
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return fmt.Sprintf("(%d bytes that are not JSON)", len(raw))
	}
	if hash, ok := document.(map[string]any); ok && hash["method"] == "create_vm" {
		if arguments, ok := hash["arguments"].([]any); ok && len(arguments) == 6 {
			arguments[5] = "<redacted>" // env: certificates, passwords
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(redacted(document)); err != nil {
		return "(not loggable)"
	}
	return string(bytes.TrimSpace(text.Bytes()))
}

package cpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	"github.com/google/uuid"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// apiVersion is the newest version of the CPI API that the director, the CLI and this CPI share.
const apiVersion = 2

// exchange is one request and what becomes of it. It is both of what bosh-cpi-go's dispatcher asks for: its
// ActionFactory, which names the function for a method, and its Caller, which calls it.
//
// The dispatcher makes NotImplemented of every error of the first, so that only a method that is not known
// is one. It reads the type of an error of the second by a type assertion, so that the outermost has one.
type exchange struct {
	ctx       context.Context
	config    func() (Config, error)
	log       *slog.Logger
	arguments []json.RawMessage
	err       error // what became of the request, for the log
}

// requestedCall is what a request says beside its arguments.
type requestedCall struct {
	method  method
	version int
	context json.RawMessage
}

// Create implements rpc.ActionFactory: it returns what Call is to do.
func (e *exchange) Create(name string, version int, context apiv1.CallContext) (any, error) {
	method, known := methods[name]
	if !known {
		return nil, fmt.Errorf("%q is no method of this CPI", name)
	}
	requested := requestedCall{method: method, version: version}
	if props, ok := context.(apiv1.CloudPropsImpl); ok {
		requested.context = props.RawMessage
	}
	return func() (any, error) { return e.serve(name, requested) }, nil
}

// Call implements rpc.Caller. The arguments are the request's own, as they came: what the dispatcher has made
// of them has lost the difference between numbers.
func (e *exchange) Call(action any, _ []any) (any, error) {
	serve, ok := action.(func() (any, error))
	if !ok {
		return nil, call.Invalid("internal error: a %T is no action", action)
	}
	result, err := serve()
	if err != nil {
		e.err = call.AsBOSH(err)
		return nil, e.err
	}
	return result, nil
}

// serve makes the session that the request describes, and calls the method in it.
func (e *exchange) serve(name string, requested requestedCall) (any, error) {
	if requested.version > apiVersion {
		return nil, call.Invalid("api_version %d is newer than this CPI's, which is %d", requested.version, apiVersion)
	}
	began := time.Now()
	session, err := e.newSession(requested)
	if err != nil {
		return nil, err
	}
	var cancel context.CancelFunc
	session.Ctx, cancel = context.WithTimeout(e.ctx, session.config.Timeouts.forMethod(name))
	defer cancel()
	if requested.method.needsCluster {
		if err := session.ensureClient(); err != nil {
			return nil, err
		}
	}
	result, err := invoke(requested.method.handler(session), e.arguments)
	session.recordCallEvent(e.ctx, name, time.Since(began), err)
	return result, err
}

// requestContext is what the CPI reads of a request's context, beside the cpi-config in it.
type requestContext struct {
	DirectorUUID string `json:"director_uuid"`
	VM           struct {
		Stemcell struct {
			APIVersion *int `json:"api_version"`
		} `json:"stemcell"`
	} `json:"vm"`
}

func (e *exchange) newSession(requested requestedCall) (*requestSession, error) {
	config, err := e.config()
	if err != nil {
		return nil, call.Invalid("%w", err)
	}
	var known requestContext
	if len(requested.context) > 0 {
		if err := json.Unmarshal(requested.context, &known); err != nil {
			return nil, call.Invalid("the request's context is not a hash as the director sends it: %w", err)
		}
	}
	if config, err = config.withOverrides(requested.context); err != nil {
		return nil, call.Invalid("%w", err)
	}
	return &requestSession{
		Call: &call.Call{
			ID: sync.OnceValue(newCallID), Director: known.DirectorUUID, Subject: &call.Subject{}, PodOptions: config.Pods, Log: e.log,
		},
		config:      config,
		version:     requested.version,
		stemcellAPI: known.VM.Stemcell.APIVersion,
	}, nil
}

// newCallID is what tells a call from every other; see manifest.AnnotationCall.
func newCallID() string { return uuid.Must(uuid.NewV7()).String() }

// requestSession is everything that the methods of one request may use.
type requestSession struct {
	*call.Call
	config      Config
	version     int  // of the API that the caller speaks
	stemcellAPI *int // the api_version of the stemcell that the call is about; nil when the director does not tell
}

// ensureClient makes the cluster's client, once. It sends nothing.
func (s *requestSession) ensureClient() (err error) {
	if s.Client != nil {
		return nil
	}
	s.Client, err = kube.New(s.config.Kubernetes, s.config.Timeouts.Request.Duration)
	if err != nil {
		return call.Invalid("%w", err)
	}
	return nil
}

// invoke calls the function with the arguments, decoded into its parameters. The function's last result is
// an error; of the others it returns none as nil, one as itself, and more as a list.
func invoke(function any, arguments []json.RawMessage) (any, error) {
	called := reflect.ValueOf(function)
	signature := called.Type()
	if len(arguments) != signature.NumIn() {
		return nil, call.Invalid("the method takes %d arguments, the request has %d", signature.NumIn(), len(arguments))
	}
	parameters := make([]reflect.Value, len(arguments))
	for i, raw := range arguments {
		parameter := reflect.New(signature.In(i))
		if err := decodeArgument(raw, parameter.Interface()); err != nil {
			return nil, call.Invalid("argument %d is not what the method takes there: %w", i+1, err)
		}
		parameters[i] = parameter.Elem()
	}
	var results []any
	for _, value := range called.Call(parameters) {
		results = append(results, value.Interface())
	}
	err, _ := results[len(results)-1].(error)
	switch results = results[:len(results)-1]; {
	case err != nil, len(results) == 0:
		return nil, err
	case len(results) == 1:
		return results[0], nil
	}
	return results, nil
}

// decodeArgument decodes one argument. Text is an id or a path, and never empty.
func decodeArgument(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return err
	}
	if text, ok := into.(*string); ok && *text == "" {
		return errors.New("it has to be non-empty text")
	}
	return nil
}

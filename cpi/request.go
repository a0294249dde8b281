package cpi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/document"
)

// apiVersion is the version of the CPI API that this CPI implements. Directors and CLIs select it after they called info, without a
// version or with version 1.
const apiVersion = 2

// exchange handles one request. It implements both interfaces that bosh-cpi-go's dispatcher requires: ActionFactory, which returns
// the function for a method, and Caller, which calls it.
//
// The dispatcher turns each error of Create into NotImplemented, so Create fails only for an unknown method. It reads the type of
// an error of Call with a type assertion, so the outermost error must have a type.
type exchange struct {
	ctx       context.Context
	config    func() (Config, error)
	log       *slog.Logger
	arguments []json.RawMessage
	err       *call.Error // error of the call, for the log
}

// requestedCall is a request without its arguments.
type requestedCall struct {
	method  method
	version int
	context json.RawMessage
}

// Create implements rpc.ActionFactory: it returns the function that Call calls.
func (e *exchange) Create(name string, version int, context apiv1.CallContext) (any, error) {
	method, known := methods[name]
	if !known {
		e.err = call.CodeUnknownMethod.Errorf("unknown method %q", name).WithCode()
		return nil, e.err
	}
	requested := requestedCall{method: method, version: version}
	if props, ok := context.(apiv1.CloudPropsImpl); ok {
		requested.context = props.RawMessage
	}
	return func() (any, error) { return e.serve(name, requested) }, nil
}

// Call implements rpc.Caller. It uses the raw arguments of the request, because the arguments decoded by the dispatcher lose the
// precision of integers.
func (e *exchange) Call(action any, _ []any) (any, error) {
	serve, ok := action.(func() (any, error))
	if !ok {
		e.err = call.CodeInternalError.Errorf("internal error: unexpected handler type %T", action).WithCode()
		return nil, e.err
	}
	result, err := serve()
	if err != nil {
		e.err = call.AsBOSHError(err).WithCode()
		return nil, e.err
	}
	return result, nil
}

// serve creates the session for the request, and calls the method in it.
func (e *exchange) serve(name string, requested requestedCall) (any, error) {
	if requested.version != apiVersion && name != "info" {
		const defaultVersion = 1 // of a request without api_version
		return nil, call.CodeAPIVersionUnsupported.Errorf("cannot call %s: api_version %d is not supported; "+
			"use a director and a BOSH CLI with version %d", name, max(requested.version, defaultVersion), apiVersion)
	}
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
	session.recordCallEvent(e.ctx, name, time.Since(session.Started), err)
	return result, err
}

// requestContext contains the fields of a request's context that the CPI uses, without those of a cpi-config.
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
		return nil, call.CodeInvalidConfig.Errorf("%w", err)
	}
	var fields requestContext
	if len(requested.context) > 0 {
		if err := document.Unmarshal("request context", requested.context, &fields); err != nil {
			return nil, call.CodeInvalidRequest.Errorf("%w", err)
		}
	}
	if config, err = config.withOverrides(requested.context); err != nil {
		return nil, call.CodeInvalidConfig.Errorf("%w", err)
	}
	return &requestSession{
		Call:        config.NewCall(fields.DirectorUUID, e.log),
		config:      config,
		stemcellAPI: fields.VM.Stemcell.APIVersion,
	}, nil
}

// requestSession contains what the method of one request uses: the call, the configuration and the stemcell's API version.
type requestSession struct {
	*call.Call
	config      Config
	stemcellAPI *int // api_version of the call's stemcell; nil if the director does not send it
}

// ensureClient creates the client for the cluster if there is none yet. It sends no request.
func (s *requestSession) ensureClient() (err error) {
	if s.Client != nil {
		return nil
	}
	options := s.config.Cluster
	options.OnWarning = func(text string) { s.Log.Warn("warning of the API server", "warning", text) }
	s.Client, err = kube.New(options, manifest.ManagedBy, s.config.Timeouts.Request.Duration)
	if err != nil {
		return call.CodeInvalidConfig.Errorf("%w", err)
	}
	return nil
}

// invoke decodes the arguments into the function's parameters and calls it. The function's last result is an error. invoke returns
// the other results: nil for none, a single result as is, several as a list.
func invoke(function any, arguments []json.RawMessage) (any, error) {
	called := reflect.ValueOf(function)
	signature := called.Type()
	if len(arguments) != signature.NumIn() {
		return nil, call.CodeInvalidRequest.Errorf("the method takes %d arguments, but the request has %d", signature.NumIn(), len(arguments))
	}
	parameters := make([]reflect.Value, len(arguments))
	for i, raw := range arguments {
		parameter := reflect.New(signature.In(i))
		if err := decodeArgument(i, raw, parameter.Interface()); err != nil {
			return nil, call.CodeInvalidRequest.Errorf("%w", err)
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

// decodeArgument decodes the argument at this index. It rejects empty strings: each string argument is an ID or a path.
func decodeArgument(index int, raw json.RawMessage, into any) error {
	name := fmt.Sprintf("argument %d", index+1)
	switch argument := into.(type) {
	case *json.RawMessage:
		*argument = raw
		return nil
	case *network.Networks:
		name = "networks"
	case *vm.Resources:
		name = "vm_resources"
	}
	if err := document.DecodeKnown(name, raw, into); err != nil {
		return err
	}
	if argument, ok := into.(*string); ok && *argument == "" {
		return fmt.Errorf("%s is an empty string", name)
	}
	return nil
}

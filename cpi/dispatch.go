package cpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// apiVersion is the newest version of the CPI API that the director, the CLI and this CPI share.
const apiVersion = 2

// call is one request on its way: everything that a method may use.
type call struct {
	ctx      context.Context
	config   Config
	director string
	// stemcellAPI is the api_version of the stemcell that the call is about; nil when the director does
	// not tell.
	stemcellAPI *int
	log         *slog.Logger
}

// cluster connects to the cluster of this request. Methods that need none never call it, so that
// they answer at once, and when no API server can be reached.
func (c *call) cluster() (*kube.Client, error) {
	client, err := kube.New(c.config.Kubernetes, c.config.Timeouts.Request.Duration)
	if err != nil {
		return nil, invalid("%w", err)
	}
	return client, nil
}

// action answers the function that serves the method in this version of the API; nil when there is
// none. Its parameters are the method's arguments.
func (c *call) action(method string, version int) any {
	switch method {
	case "info":
		return c.info
	case "create_stemcell":
		return c.createStemcell
	case "delete_stemcell":
		return c.deleteStemcell
	case "create_vm":
		if version < 2 {
			return c.createVMV1
		}
		return c.createVMV2
	case "delete_vm":
		return c.deleteVM
	case "has_vm":
		return c.hasVM
	case "reboot_vm":
		return c.rebootVM
	case "set_vm_metadata":
		return c.setVMMetadata
	case "calculate_vm_cloud_properties":
		return c.calculateVMCloudProperties
	case "create_network":
		return c.createNetwork
	case "delete_network":
		return c.deleteNetwork
	case "create_disk":
		return c.createDisk
	case "delete_disk":
		return c.deleteDisk
	case "has_disk":
		return c.hasDisk
	case "attach_disk":
		if version < 2 {
			return c.attachDiskV1
		}
		return c.attachDisk
	case "detach_disk":
		return c.detachDisk
	case "get_disks":
		return c.getDisks
	case "set_disk_metadata":
		return c.setDiskMetadata
	case "resize_disk":
		return c.resizeDisk
	case "update_disk":
		return c.updateDisk
	case "snapshot_disk":
		return c.snapshotDisk
	case "delete_snapshot":
		return c.deleteSnapshot
	}
	return nil
}

type info struct {
	APIVersion      int      `json:"api_version"`
	StemcellFormats []string `json:"stemcell_formats"`
}

func (c *call) info() (info, error) {
	return info{APIVersion: apiVersion, StemcellFormats: stemcell.Formats()}, nil
}

// createVMV2 answers the CID and the networks; the dispatcher makes one list of them.
func (c *call) createVMV2(agentID apiv1.AgentID, stemcellCID apiv1.StemcellCID, properties apiv1.CloudPropsImpl,
	networks Networks, disks []apiv1.DiskCID, env json.RawMessage) (apiv1.VMCID, Networks, error) {
	return c.createVM(agentID, stemcellCID, properties, networks, disks, env)
}

func (c *call) createVMV1(agentID apiv1.AgentID, stemcellCID apiv1.StemcellCID, properties apiv1.CloudPropsImpl,
	networks Networks, disks []apiv1.DiskCID, env json.RawMessage) (apiv1.VMCID, error) {
	cid, _, err := c.createVM(agentID, stemcellCID, properties, networks, disks, env)
	return cid, err
}

func (c *call) attachDiskV1(vm apiv1.VMCID, disk apiv1.DiskCID) (any, error) {
	_, err := c.attachDisk(vm, disk)
	return nil, err
}

// actions makes the function for each request. It is bosh-cpi-go's ActionFactory, whose errors all
// become NotImplemented: an error of another kind has to be the function's own.
type actions struct {
	ctx    context.Context
	config func() (Config, error)
	log    *slog.Logger
	cancel context.CancelFunc
}

type requestContext struct {
	DirectorUUID string `json:"director_uuid"`
	VM           struct {
		Stemcell struct {
			APIVersion *int `json:"api_version"`
		} `json:"stemcell"`
	} `json:"vm"`
}

// Create answers the function for one request.
func (a *actions) Create(method string, version int, raw apiv1.CallContext) (any, error) {
	c := &call{ctx: a.ctx, log: a.log}
	serve := c.action(method, version)
	if serve == nil {
		return nil, fmt.Errorf("%q is no method of this CPI", method)
	}
	if version > apiVersion {
		return failing(serve, invalid("api_version %d is newer than this CPI's, which is %d", version, apiVersion)), nil
	}
	config, err := a.config()
	if err != nil {
		return failing(serve, invalid("%w", err)), nil
	}
	var sent json.RawMessage
	var known requestContext
	if props, ok := raw.(apiv1.CloudPropsImpl); ok && len(props.RawMessage) > 0 {
		sent = props.RawMessage
		if err := json.Unmarshal(sent, &known); err != nil {
			return failing(serve, invalid("the request's context is not a hash as the director sends it: %w", err)), nil
		}
	}
	if config, err = config.with(sent); err != nil {
		return failing(serve, invalid("%w", err)), nil
	}
	c.config, c.director, c.stemcellAPI = config, known.DirectorUUID, known.VM.Stemcell.APIVersion
	c.ctx, a.cancel = context.WithTimeout(a.ctx, config.Timeouts.of(method))
	return serve, nil
}

// failing takes the same arguments as serve and answers the error.
func failing(serve any, err error) any {
	kind := reflect.TypeOf(serve)
	return reflect.MakeFunc(kind, func([]reflect.Value) []reflect.Value {
		results := make([]reflect.Value, kind.NumOut())
		for i := range results {
			results[i] = reflect.Zero(kind.Out(i))
		}
		results[len(results)-1] = reflect.ValueOf(&err).Elem()
		return results
	}).Interface()
}

// caller is bosh-cpi-go's JSONCaller with two differences: it does not overlook surplus arguments,
// and every error has one of BOSH's types.
type caller struct {
	inner interface {
		Call(action any, arguments []any) (any, error)
	}
	failed error // the error of the call, for the log
}

// Call runs the action. An error without a type that it did not make itself is about the arguments.
func (c *caller) Call(action any, arguments []any) (any, error) {
	wants := reflect.TypeOf(action).NumIn()
	if len(arguments) != wants {
		return nil, c.fail(invalid("the method takes %d arguments, the request has %d", wants, len(arguments)))
	}
	ran := false
	result, err := c.inner.Call(watched(action, &ran), arguments)
	switch {
	case err == nil:
		return result, nil
	case !ran:
		return nil, c.fail(invalid("an argument is not of the type that the method takes: %w", err))
	}
	return nil, c.fail(asBOSH(err))
}

func (c *caller) fail(err *Error) error {
	c.failed = err
	return err
}

// watched notes that the action was reached.
func watched(action any, ran *bool) any {
	inner := reflect.ValueOf(action)
	return reflect.MakeFunc(inner.Type(), func(arguments []reflect.Value) []reflect.Value {
		*ran = true
		return inner.Call(arguments)
	}).Interface()
}

var errPanic = errors.New("internal error")

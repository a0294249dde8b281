package main

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"bosh-kubernetes-cpi/kube/document"
)

// shim runs one CNI command.
type shim struct {
	version string // cniVersion of the parsed configuration
	output  []byte // printed on success
}

// parseEntry parses the plugin entry sent by the runtime.
func (s *shim) parseEntry(stdin []byte) (object, error) {
	var entry object
	if err := document.Unmarshal("the network configuration", stdin, &entry); err != nil {
		return nil, newError(types.ErrDecodingFailure, "%v", err)
	}
	_ = json.Unmarshal(entry["cniVersion"], &s.version) // validated by skel
	return entry, nil
}

// add assigns the addresses that the Pod's annotation requests, or fails.
func (s *shim) add(args *skel.CmdArgs) error {
	entry, err := s.parseEntry(args.StdinData)
	if err != nil {
		return err
	}
	config, err := parseConfig(entry)
	if err != nil {
		return err
	}
	target, err := s.findDelegate(entry, args.Path, args.Args)
	if err != nil {
		return err
	}
	cniArgs, err := parseArguments(args.Args)
	if err != nil {
		return err
	}
	pod := parsePodName(cniArgs)
	var requested []netip.Addr
	if pod.isSet() && config.servesNamespace(pod.namespace) {
		if requested, err = config.requestedAddresses(pod); err != nil {
			return err
		}
	}
	if len(requested) == 0 {
		s.output, err = target.run("ADD")
		return err
	}
	formatted, err := formatAddresses(requested, config.Subnets)
	if err != nil {
		return newError(codeInvalidRequest, "annotation %s of Pod %s: %v", config.Annotation, pod, err)
	}
	if target, err = target.withAddresses(cniArgs, formatted); err != nil {
		return err
	}
	if s.output, err = target.run("ADD"); err != nil {
		return err
	}
	return s.verifyAddresses(target, config.Annotation, pod, requested)
}

// verifyAddresses rolls back an ADD that did not assign all requested addresses. Otherwise BOSH would assume that the VM has the
// address in the manifest.
func (s *shim) verifyAddresses(target delegate, annotation string, pod podName, requested []netip.Addr) error {
	assigned, err := resultAddresses(s.output)
	isUnassigned := func(address netip.Addr) bool { return !slices.Contains(assigned, address) }
	var cniErr *types.Error
	switch {
	case err != nil:
		cniErr = newError(types.ErrDecodingFailure,
			"Pod %s requests address %s (annotation %s), but the delegate %s returned an invalid result for ADD: %v",
			pod, describeAddresses(requested), annotation, target.kind, err)
	case slices.ContainsFunc(requested, isUnassigned):
		cniErr = newError(codeAddressIgnored, "Pod %s requests address %s (annotation %s), but the delegate %s assigned %s: "+
			"either it supports neither IP in CNI_ARGS nor the capability ips, or the requested address is outside its ranges",
			pod, describeAddresses(requested), annotation, target.kind, describeAddresses(assigned))
	default:
		return nil
	}
	if err := s.rollback(target); err != nil {
		cniErr.Details = "the delegate's DEL also failed: " + err.Error()
	}
	return cniErr
}

// rollback runs the delegate's DEL. Since version 0.4.0, DEL requires the result of ADD (specification, section 2: CNI operations,
// DEL).
func (s *shim) rollback(target delegate) error {
	if needsResult, err := version.GreaterThanOrEqualTo(s.version, "0.4.0"); err == nil && needsResult && json.Valid(s.output) {
		if target.config, err = target.config.with(json.RawMessage(s.output), "prevResult"); err != nil {
			return err
		}
	}
	_, err := target.run("DEL")
	return err
}

// del, check and gc forward the command to the delegate, and send no requests to the API server.
func (s *shim) del(args *skel.CmdArgs) error   { return s.forward("DEL", args) }
func (s *shim) check(args *skel.CmdArgs) error { return s.forward("CHECK", args) }
func (s *shim) gc(args *skel.CmdArgs) error    { return s.forward("GC", args) }

func (s *shim) forward(command string, args *skel.CmdArgs) error {
	entry, err := s.parseEntry(args.StdinData)
	if err != nil {
		return err
	}
	target, err := s.findDelegate(entry, args.Path, args.Args)
	if err != nil {
		return err
	}
	s.output, err = target.run(command)
	return err
}

// status reports whether this node can run ADD. It sends no request to the API server: an outage of the API server must not make
// nodes NotReady, and no new Pods can be created during it anyway.
func (s *shim) status(args *skel.CmdArgs) error {
	entry, err := s.parseEntry(args.StdinData)
	if err != nil {
		return err
	}
	target, err := s.checkedDelegate(entry, args)
	if err != nil {
		if known, ok := errors.AsType[*types.Error](err); ok {
			known.Code = codeUnavailable
		}
		return err
	}
	s.output, err = target.run("STATUS")
	return err
}

// checkedDelegate returns the delegate after it checked what ADD requires on this node.
func (s *shim) checkedDelegate(entry object, args *skel.CmdArgs) (delegate, error) {
	config, err := parseConfig(entry)
	if err != nil {
		return delegate{}, err
	}
	// An error makes the whole node NotReady. If namespaces are listed, Pods of other namespaces need no kubeconfig, and ADD returns
	// this error for Pods of the listed ones.
	if len(config.Namespaces) == 0 {
		if _, err := config.newClient(""); err != nil {
			return delegate{}, err
		}
	}
	return s.findDelegate(entry, args.Path, args.Args)
}

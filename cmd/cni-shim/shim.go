package main

import (
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// shim answers one CNI command.
type shim struct {
	version string // the configuration's cniVersion, once it is known
	answer  []byte // what to print on success
}

// read returns the plugin's entry, as the runtime sent it.
func (s *shim) read(stdin []byte) (object, error) {
	var entry object
	if err := json.Unmarshal(stdin, &entry); err != nil {
		return nil, failure(types.ErrDecodingFailure, "read the network's configuration: %v", err)
	}
	_ = json.Unmarshal(entry["cniVersion"], &s.version) // skel has checked it
	return entry, nil
}

// add gives the Pod the addresses that its annotation asks for, or fails.
func (s *shim) add(args *skel.CmdArgs) error {
	entry, err := s.read(args.StdinData)
	if err != nil {
		return err
	}
	config, err := parseConfig(entry)
	if err != nil {
		return err
	}
	target, err := s.delegate(entry, args.Path, args.Args)
	if err != nil {
		return err
	}
	call, err := parseArguments(args.Args)
	if err != nil {
		return err
	}
	pod := podOf(call)
	var wanted []netip.Addr
	if pod.known() && config.serves(pod.namespace) {
		if wanted, err = config.wanted(pod); err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		s.answer, err = target.run("ADD")
		return err
	}
	notations, err := notations(wanted, config.Subnets)
	if err != nil {
		return failure(codeRequest, "annotation %s of Pod %s: %v", config.Annotation, pod, err)
	}
	if target, err = target.asking(call, notations); err != nil {
		return err
	}
	if s.answer, err = target.run("ADD"); err != nil {
		return err
	}
	return s.verify(target, config.Annotation, pod, wanted)
}

// verify undoes an ADD that gave the Pod other addresses than it asked for: BOSH would go on as if
// the machine had the address of the manifest.
func (s *shim) verify(target delegate, annotation string, pod podName, wanted []netip.Addr) error {
	got, err := given(s.answer)
	lacks := missing(wanted, got)
	var failed *types.Error
	switch {
	case err != nil:
		failed = failure(types.ErrDecodingFailure,
			"Pod %s asks for the address %s (annotation %s), and the delegate %s answered ADD with something that is no result: %v",
			pod, list(wanted), annotation, target.kind, err)
	case len(lacks) > 0:
		failed = failure(codeIgnored, "Pod %s asks for the address %s (annotation %s), but the delegate %s gave %s: "+
			"it does not take addresses by CNI_ARGS or the capability ips, or its ranges do not hold this one",
			pod, list(wanted), annotation, target.kind, list(got))
	default:
		return nil
	}
	if err := s.undo(target); err != nil {
		failed.Details = "the delegate's DEL failed, too: " + err.Error()
	}
	return failed
}

// undo runs the delegate's DEL. From 0.4.0 on, DEL takes ADD's result (specification, section 2: CNI
// operations, DEL).
func (s *shim) undo(target delegate) error {
	if takes, err := version.GreaterThanOrEqualTo(s.version, "0.4.0"); err == nil && takes && json.Valid(s.answer) {
		if target.config, err = target.config.with(json.RawMessage(s.answer), "prevResult"); err != nil {
			return err
		}
	}
	_, err := target.run("DEL")
	return err
}

// del, check and gc are the delegate's business. None of them asks the API.
func (s *shim) del(args *skel.CmdArgs) error   { return s.forward("DEL", args) }
func (s *shim) check(args *skel.CmdArgs) error { return s.forward("CHECK", args) }
func (s *shim) gc(args *skel.CmdArgs) error    { return s.forward("GC", args) }

func (s *shim) forward(command string, args *skel.CmdArgs) error {
	entry, err := s.read(args.StdinData)
	if err != nil {
		return err
	}
	target, err := s.delegate(entry, args.Path, args.Args)
	if err != nil {
		return err
	}
	s.answer, err = target.run(command)
	return err
}

// status reports whether ADD can be served, as far as this node is concerned. It sends no request to the API
// server: without that no Pod is started anyway, and an outage must not make nodes NotReady.
func (s *shim) status(args *skel.CmdArgs) error {
	entry, err := s.read(args.StdinData)
	if err != nil {
		return err
	}
	target, err := s.ready(entry, args)
	if err != nil {
		if known, ok := errors.AsType[*types.Error](err); ok {
			known.Code = codeUnavailable
		}
		return err
	}
	s.answer, err = target.run("STATUS")
	return err
}

func (s *shim) ready(entry object, args *skel.CmdArgs) (delegate, error) {
	config, err := parseConfig(entry)
	if err != nil {
		return delegate{}, err
	}
	// An error makes the whole node NotReady. Where namespaces are listed, the Pods of others need no kubeconfig; those
	// of the listed ones get the reason as the error of their ADD.
	if len(config.Namespaces) == 0 {
		if _, err := config.client(""); err != nil {
			return delegate{}, err
		}
	}
	return s.delegate(entry, args.Path, args.Args)
}

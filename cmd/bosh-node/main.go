//go:build linux

// Command bosh-node is the program of this CPI that runs on nodes: as PID 1 of VMs, and in attachment and helper Pods. Package cpi/node/api
// describes its commands. It is delivered as an image of its own, which contains only this program.
//
// In a VM, it is also mount, umount, and the programs that restart the VM, by the name of the link to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/agent"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/boot"
	"bosh-kubernetes-cpi/cpi/node/probe"
	"bosh-kubernetes-cpi/cpi/node/shutdown"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// terminationLog becomes the termination message of the container.
const terminationLog = "/dev/termination-log"

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	p := program{environment: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(os.Args))
}

// program is what the program uses of its process.
type program struct {
	sys            system.System
	environment    []string
	stdout, stderr io.Writer
}

// run runs the command in the arguments, of which the first is the name of the program, and returns its exit status.
func (p program) run(arguments []string) int {
	switch name := filepath.Base(arguments[0]); name {
	case "mount", "umount":
		return p.status(boot.MountWrapper(p.sys, name, arguments[1:], p.environment))
	case "reboot", "halt", "poweroff", "shutdown":
		return p.status(boot.RebootProgram(p.sys, arguments[1:]))
	}
	name, arguments := strings.Join(arguments[1:min(3, len(arguments))], " "), arguments[min(3, len(arguments)):]
	command, known := commands[name]
	if !known {
		return p.status(usageError{fmt.Errorf("unknown command %q", name)})
	}
	err := command.run(p, arguments)
	if err != nil && command.code != "" && !errors.As(err, new(usageError)) {
		p.report(err, command.code)
	}
	return p.status(err)
}

// A command runs with the arguments after its name.
type command struct {
	run func(p program, arguments []string) error
	// code is the code of an error without one. If it is "", the command has no result: it runs next to the program of the container.
	code string
}

var commands = map[string]command{
	api.PrintVersion: {func(p program, _ []string) error {
		_, err := fmt.Fprintln(p.stdout, api.Version)
		return err
	}, ""},
	"agent connected":     {withoutArguments(agent.Connected), ""},
	"agent running":       {withoutArguments(agent.Running), ""},
	"disk " + api.Attach:  {onDisk(api.Attach, attach.Run), "disk-attach-failed"},
	"disk " + api.Check:   {onDisk(api.Check, attach.Check), "disk-check-failed"},
	"disk " + api.Idle:    {onDisk(api.Idle, attach.Idle), "disk-attach-failed"},
	"disk " + api.Prepare: {onDisk(api.Prepare, attach.Prepare), "disk-attach-failed"},
	"disk " + api.Wait:    {onDisk(api.Wait, attach.Wait), ""},
	"node flush":          {withoutArguments(system.System.SyncAll), "disk-flush-failed"},
	"node probe":          {runProbe, "cluster-error"},
	"vm lxcfs-mounts": {func(p program, mounted []string) error {
		return boot.LXCFSMounts(context.Background(), p.sys, boot.LXCFSCheckPeriod, mounted)
	}, ""},
	"vm reboot": {withStop(api.ParseVMReboot, shutdown.Reboot), "vm-reboot-failed"},
	"vm start": {func(p program, arguments []string) error {
		init, err := api.ParseVMStart(arguments)
		if err != nil {
			return usageError{err}
		}
		return boot.Start(p.sys, init, p.environment)
	}, "vm-start-failed"},
	"vm stop": {withStop(api.ParseVMStop, shutdown.Stop), ""},
}

// usageError is an error in the arguments of a command.
type usageError struct{ error }

func withoutArguments(run func(system.System) error) func(program, []string) error {
	return func(p program, arguments []string) error {
		if len(arguments) > 0 {
			return usageError{fmt.Errorf("unknown argument %q", arguments[0])}
		}
		return run(p.sys)
	}
}

// withStop runs a command with a context that ends with a signal to stop.
func withStop[T any](
	parse func([]string) (T, error), run func(context.Context, system.System, T) error,
) func(program, []string) error {
	return func(p program, arguments []string) error {
		request, err := parse(arguments)
		if err != nil {
			return usageError{err}
		}
		ctx, _ := system.WithStop(context.Background()) // until the program exits: a later signal must not change its exit status
		return run(ctx, p.sys, request)
	}
}

func onDisk(name string, run func(context.Context, system.System, api.Disk) error) func(program, []string) error {
	return withStop(func(arguments []string) (api.Disk, error) { return api.ParseDisk(name, arguments) }, run)
}

func runProbe(p program, arguments []string) error {
	apiServer := net.JoinHostPort(p.variable("KUBERNETES_SERVICE_HOST"), p.variable("KUBERNETES_SERVICE_PORT"))
	return withStop(api.ParseNodeProbe, func(ctx context.Context, sys system.System, request api.NodeProbe) error {
		return probe.Run(ctx, sys, request, apiServer)
	})(p, arguments)
}

// variable returns the value of an environment variable, or "".
func (p program) variable(name string) string {
	for _, variable := range p.environment {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

// report writes the result of a command that failed to the termination message. The log has the error, too, if that fails.
func (p program) report(err error, code string) {
	result, err := api.ResultOf(err, code).Encode()
	if err == nil {
		err = p.sys.WriteFile(terminationLog, result, 0o644)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "bosh-node: cannot report the error: %v\n", err)
	}
}

// status returns the exit status of a command, and logs its error.
func (p program) status(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.stderr, "bosh-node: %v\n", err)
	switch {
	case errors.As(err, new(usageError)):
		return api.ExitUsage
	case errors.Is(err, attach.ErrNotPublished):
		return api.ExitNotPublished
	}
	return api.ExitFailed
}

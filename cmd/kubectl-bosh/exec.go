package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/kube"
)

// machineContainer is the one of a machine's Pod that runs the machine.
const machineContainer = "machine"

// execution is a command to run in an instance.
type execution struct {
	filter instances.Filter
	stdin  bool
	tty    bool
}

func newExecCommand(connection *connection) *cobra.Command {
	var execution execution
	command := &cobra.Command{
		Use:               "exec INSTANCE [flags] -- COMMAND [ARGUMENT...]",
		Short:             "Run a command in an instance, as root",
		Example:           `  kubectl bosh exec web/0 -- monit summary`,
		ValidArgsFunction: completeInstance(connection, &execution.filter),
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 2 || command.ArgsLenAtDash() != 1 {
				return errors.New("give one INSTANCE, and behind -- the command to run in it")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return execution.run(command, connection, args[0], args[1:])
		},
	}
	addFilterFlags(command.Flags(), &execution.filter)
	command.Flags().BoolVarP(&execution.stdin, "stdin", "i", false, "Pass stdin to the command")
	command.Flags().BoolVarP(&execution.tty, "tty", "t", false, "Stdin is a terminal")
	return command
}

func newSSHCommand(connection *connection) *cobra.Command {
	execution := execution{stdin: true}
	command := &cobra.Command{
		Use:   "ssh INSTANCE [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to an instance, as root",
		Long: `Log in to an instance, as root: a login shell in the machine, or the command. No sshd and no key is needed; the way is that
of kubectl exec.`,
		ValidArgsFunction: completeInstance(connection, &execution.filter),
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) < 1 || dash == 0 || dash != 1 && len(args) != 1 {
				return errors.New("give one INSTANCE, and behind -- a command if none but a shell is wanted")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			execution.tty = term.IsTerminal(int(os.Stdin.Fd()))
			run := args[1:]
			if len(run) == 0 {
				run = []string{"/bin/bash", "--login"}
			}
			return execution.run(command, connection, args[0], run)
		},
	}
	addFilterFlags(command.Flags(), &execution.filter)
	return command
}

// run runs the command in the instance. Its exit status other than 0 is an exitStatus.
func (e execution) run(command *cobra.Command, connection *connection, name string, run []string) error {
	client, config, err := connection.open()
	if err != nil {
		return err
	}
	ctx := command.Context()
	instance, err := instances.Find(ctx, client, e.filter, name)
	if err != nil {
		return err
	}
	executor, err := newExecutor(config, e.location(client, instance.Pod, run))
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(), Tty: e.tty}
	if e.stdin || e.tty {
		options.Stdin = command.InOrStdin()
	}
	if e.tty {
		err = inTerminal(ctx, executor, options)
	} else {
		err = executor.StreamWithContext(ctx, options)
	}
	if status, ok := errors.AsType[exec.CodeExitError](err); ok {
		return exitStatus(status.Code)
	}
	return err
}

func (e execution) location(client *kube.Client, pod string, run []string) *url.URL {
	location := client.Pods.URL(pod, "exec")
	query := url.Values{"container": {machineContainer}, "command": run, "stdout": {"true"}}
	if e.stdin || e.tty {
		query.Set("stdin", "true")
	}
	if e.tty {
		query.Set("tty", "true") // whose stderr is stdout
	} else {
		query.Set("stderr", "true")
	}
	location.RawQuery = query.Encode()
	return location
}

// newExecutor speaks WebSocket, and SPDY where that does not get through, as kubectl does.
func newExecutor(config *rest.Config, location *url.URL) (remotecommand.Executor, error) {
	second, err := remotecommand.NewSPDYExecutor(config, "POST", location)
	if err != nil {
		return nil, err
	}
	first, err := remotecommand.NewWebSocketExecutor(config, "GET", location.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// inTerminal runs the command with this terminal, which does nothing itself with what is typed meanwhile.
func inTerminal(ctx context.Context, executor remotecommand.Executor, options remotecommand.StreamOptions) error {
	terminal := int(os.Stdin.Fd())
	if !term.IsTerminal(terminal) {
		return errors.New("stdin is no terminal: leave out -t")
	}
	before, err := term.MakeRaw(terminal)
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(terminal, before) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	options.TerminalSizeQueue = newSizes(ctx, terminal)
	options.Stderr = nil
	return executor.StreamWithContext(ctx, options)
}

func newLogsCommand(connection *connection) *cobra.Command {
	var filter instances.Filter
	var options corev1.PodLogOptions
	var tail int64
	command := &cobra.Command{
		Use:   "logs INSTANCE",
		Short: "Print what an instance's init has written: how it booted, and why not",
		Long: `Print what an instance's init has written: how it booted, and why not. Jobs and the agent write to files in the machine:
kubectl bosh exec INSTANCE -- tail -n 100 /var/vcap/bosh/log/current`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeInstance(connection, &filter),
		RunE: func(command *cobra.Command, args []string) error {
			client, _, err := connection.open()
			if err != nil {
				return err
			}
			instance, err := instances.Find(command.Context(), client, filter, args[0])
			if err != nil {
				return err
			}
			options.Container = machineContainer
			if tail >= 0 {
				options.TailLines = &tail
			}
			log, err := client.Pods.Stream(command.Context(), instance.Pod, "log", &options)
			if err != nil {
				return err
			}
			defer log.Close()
			if _, err := io.Copy(command.OutOrStdout(), log); err != nil && command.Context().Err() == nil {
				return fmt.Errorf("the log of %s: %w", instance.Pod, err)
			}
			return nil
		},
	}
	addFilterFlags(command.Flags(), &filter)
	command.Flags().BoolVarP(&options.Follow, "follow", "f", false, "Go on with what is written from now on")
	command.Flags().BoolVarP(&options.Previous, "previous", "p", false, "Of the container before its last restart")
	command.Flags().Int64Var(&tail, "tail", -1, "Only so many lines of the end; -1 for all")
	return command
}

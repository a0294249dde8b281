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

// vmContainer is the container of a VM Pod that runs the VM.
const vmContainer = "vm"

// execution is a command that runs in an instance's VM.
type execution struct {
	filter instances.Filter
	stdin  bool
	tty    bool
}

func newExecCommand(connection *connection) *cobra.Command {
	var execution execution
	command := &cobra.Command{
		Use:   "exec INSTANCE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command as root in an instance's VM",
		Long:  "Run a command as root in an instance's VM, and exit with its exit status. It requires the right to create pods/exec.",
		Example: `  # Show the state of the instance's jobs
  kubectl bosh exec -n bosh web/0 -- monit summary

  # Pass stdin to the command
  kubectl bosh exec -n bosh web/0 -i -- tar -xzf - -C /tmp <files.tgz`,
		ValidArgsFunction: completeInstance(connection, &execution.filter),
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 2 || command.ArgsLenAtDash() != 1 {
				return errors.New("exec requires one INSTANCE, and a command after --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return execution.run(command, connection, args[0], args[1:])
		},
	}
	addFilterFlags(command.Flags(), &execution.filter)
	command.Flags().BoolVarP(&execution.stdin, "stdin", "i", false, "Pass stdin to the command")
	command.Flags().BoolVarP(&execution.tty, "tty", "t", false, "Allocate a terminal for the command; stdin must be a terminal")
	return command
}

func newSSHCommand(connection *connection) *cobra.Command {
	execution := execution{stdin: true}
	command := &cobra.Command{
		Use:   "ssh INSTANCE [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to an instance's VM as root",
		Long: `Open a login shell as root in an instance's VM, or run a command there. The connection uses the API server's exec, like
"kubectl exec": it requires no sshd, no SSH key and no running BOSH agent, but the right to create pods/exec.`,
		Example:           `  kubectl bosh ssh -n bosh web/0`,
		ValidArgsFunction: completeInstance(connection, &execution.filter),
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) < 1 || dash == 0 || dash != 1 && len(args) != 1 {
				return errors.New("ssh requires one INSTANCE, and optionally a command after --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			execution.tty = term.IsTerminal(int(os.Stdin.Fd()))
			remoteCommand := args[1:]
			if len(remoteCommand) == 0 {
				remoteCommand = []string{"/bin/bash", "--login"}
			}
			return execution.run(command, connection, args[0], remoteCommand)
		},
	}
	addFilterFlags(command.Flags(), &execution.filter)
	return command
}

// run runs the command in the instance. If its exit status is not 0, the error is an exitStatus.
func (e execution) run(command *cobra.Command, connection *connection, name string, remoteCommand []string) error {
	client, config, err := connection.newClient()
	if err != nil {
		return err
	}
	ctx := command.Context()
	instance, err := instances.Find(ctx, client, e.filter, name)
	if err != nil {
		return err
	}
	executor, err := newExecutor(config, e.execURL(client, instance.Pod, remoteCommand))
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(), Tty: e.tty}
	if e.stdin || e.tty {
		options.Stdin = command.InOrStdin()
	}
	if e.tty {
		err = streamTerminal(ctx, executor, options)
	} else {
		err = executor.StreamWithContext(ctx, options)
	}
	if status, ok := errors.AsType[exec.CodeExitError](err); ok {
		return exitStatus(status.Code)
	}
	return err
}

func (e execution) execURL(client *kube.Client, pod string, remoteCommand []string) *url.URL {
	location := client.Pods.URL(pod, "exec")
	query := url.Values{"container": {vmContainer}, "command": remoteCommand, "stdout": {"true"}}
	if e.stdin || e.tty {
		query.Set("stdin", "true")
	}
	if e.tty {
		query.Set("tty", "true") // a terminal has no separate stderr
	} else {
		query.Set("stderr", "true")
	}
	location.RawQuery = query.Encode()
	return location
}

// newExecutor returns an executor that uses WebSocket, and falls back to SPDY, like kubectl.
func newExecutor(config *rest.Config, location *url.URL) (remotecommand.Executor, error) {
	spdyExecutor, err := remotecommand.NewSPDYExecutor(config, "POST", location)
	if err != nil {
		return nil, err
	}
	webSocketExecutor, err := remotecommand.NewWebSocketExecutor(config, "GET", location.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(webSocketExecutor, spdyExecutor, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// streamTerminal runs the command with this process's terminal in raw mode.
func streamTerminal(ctx context.Context, executor remotecommand.Executor, options remotecommand.StreamOptions) error {
	terminal := int(os.Stdin.Fd())
	if !term.IsTerminal(terminal) {
		return errors.New("stdin is not a terminal; omit -t")
	}
	oldState, err := term.MakeRaw(terminal)
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(terminal, oldState) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	options.TerminalSizeQueue = newTerminalSizes(ctx, terminal)
	options.Stderr = nil
	return executor.StreamWithContext(ctx, options)
}

func newLogsCommand(connection *connection) *cobra.Command {
	var filter instances.Filter
	var options corev1.PodLogOptions
	var tail int64
	command := &cobra.Command{
		Use:   "logs INSTANCE",
		Short: "Print the log of an instance's init process",
		Long: `Print the log of the init process of an instance's VM, which shows how the VM has booted, or why it has not. The BOSH agent and
jobs write their logs to files in the VM.`,
		Example: `  # Follow the boot of a VM
  kubectl bosh logs -n bosh web/0 -f

  # Print the log of the BOSH agent
  kubectl bosh exec -n bosh web/0 -- tail -n 100 /var/vcap/bosh/log/current`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeInstance(connection, &filter),
		RunE: func(command *cobra.Command, args []string) error {
			client, _, err := connection.newClient()
			if err != nil {
				return err
			}
			instance, err := instances.Find(command.Context(), client, filter, args[0])
			if err != nil {
				return err
			}
			options.Container = vmContainer
			if tail >= 0 {
				options.TailLines = &tail
			}
			log, err := client.Pods.Stream(command.Context(), instance.Pod, "log", &options)
			if err != nil {
				return err
			}
			defer log.Close()
			if _, err := io.Copy(command.OutOrStdout(), log); err != nil && command.Context().Err() == nil {
				return fmt.Errorf("read the log of Pod %s: %w", instance.Pod, err)
			}
			return nil
		},
	}
	addFilterFlags(command.Flags(), &filter)
	command.Flags().BoolVarP(&options.Follow, "follow", "f", false, "Follow the log")
	command.Flags().BoolVarP(&options.Previous, "previous", "p", false, "Print the log of the container before its last restart")
	command.Flags().Int64Var(&tail, "tail", -1, "Number of `lines` to print from the end of the log; -1 prints all")
	return command
}

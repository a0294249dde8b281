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
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// execOptions are the flags of `kubectl bosh exec` and `kubectl bosh ssh`.
type execOptions struct {
	filter instances.Filter
	stdin  bool
	tty    bool
}

func newExecCommand(conn *connection) *cobra.Command {
	var options execOptions
	command := &cobra.Command{
		Use:   "exec INSTANCE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command as root in an instance's VM",
		Long:  "Run a command as root in an instance's VM, and exit with the command's status. Requires permission to create pods/exec.",
		Example: `  # Show the state of the instance's jobs
  kubectl bosh exec -n bosh web/0 -- monit summary

  # Pass stdin to the command
  kubectl bosh exec -n bosh web/0 -i -- tar -xzf - -C /tmp <files.tgz`,
		ValidArgsFunction: completeInstance(conn, &options.filter),
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 2 || command.ArgsLenAtDash() != 1 {
				return errors.New("exec requires one INSTANCE, and a command after --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command, conn, args[0], args[1:])
		},
	}
	addFilterFlags(command.Flags(), &options.filter)
	command.Flags().BoolVarP(&options.stdin, "stdin", "i", false, "Pass stdin to the command")
	command.Flags().BoolVarP(&options.tty, "tty", "t", false, "Allocate a terminal for the command; stdin must be a terminal")
	return command
}

func newSSHCommand(conn *connection) *cobra.Command {
	options := execOptions{stdin: true}
	command := &cobra.Command{
		Use:   "ssh INSTANCE [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to an instance's VM as root",
		Long: "Open a login shell as root in an instance's VM, or run a command there. The connection goes through the API server, as with\n" +
			"`kubectl exec`. This requires permission to create pods/exec, but no sshd, no SSH key and no running BOSH agent.",
		Example: `  # Open a login shell
  kubectl bosh ssh -n bosh web/0`,
		ValidArgsFunction: completeInstance(conn, &options.filter),
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) < 1 || dash == 0 || dash != 1 && len(args) != 1 {
				return errors.New("ssh requires one INSTANCE, and optionally a command after --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			options.tty = term.IsTerminal(int(os.Stdin.Fd()))
			remoteCommand := args[1:]
			if len(remoteCommand) == 0 {
				remoteCommand = []string{"/bin/bash", "--login"}
			}
			return options.run(command, conn, args[0], remoteCommand)
		},
	}
	addFilterFlags(command.Flags(), &options.filter)
	return command
}

// run runs the command in the instance. If its exit status is not 0, the error is an exitStatus.
func (o execOptions) run(command *cobra.Command, conn *connection, name string, remoteCommand []string) error {
	client, config, err := conn.newClient()
	if err != nil {
		return err
	}
	ctx := command.Context()
	instance, err := instances.Find(ctx, client, o.filter, name)
	if err != nil {
		return err
	}
	executor, err := newExecutor(config, o.execURL(client, instance.Pod, remoteCommand))
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(), Tty: o.tty}
	if o.stdin || o.tty {
		streams.Stdin = command.InOrStdin()
	}
	if o.tty {
		err = streamTerminal(ctx, executor, streams)
	} else {
		err = executor.StreamWithContext(ctx, streams)
	}
	if status, ok := errors.AsType[exec.CodeExitError](err); ok {
		return exitStatus(status.Code)
	}
	return err
}

func (o execOptions) execURL(client *kube.Client, pod string, remoteCommand []string) *url.URL {
	location := client.Pods.URL(pod, "exec")
	query := url.Values{"container": {manifest.VMContainer}, "command": remoteCommand, "stdout": {"true"}}
	if o.stdin || o.tty {
		query.Set("stdin", "true")
	}
	if o.tty {
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
func streamTerminal(ctx context.Context, executor remotecommand.Executor, streams remotecommand.StreamOptions) error {
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
	streams.TerminalSizeQueue = newTerminalSizes(ctx, terminal)
	streams.Stderr = nil
	return executor.StreamWithContext(ctx, streams)
}

func newLogsCommand(conn *connection) *cobra.Command {
	var filter instances.Filter
	var options corev1.PodLogOptions
	var tail int64
	command := &cobra.Command{
		Use:   "logs INSTANCE",
		Short: "Print the log of an instance's init process",
		Long: `Print the log of the init process of an instance's VM. It shows how the VM booted, or why it did not boot. The BOSH agent and the
jobs write their logs to files in the VM.`,
		Example: `  # Follow the boot of a VM
  kubectl bosh logs -n bosh web/0 -f

  # Print the log of the BOSH agent
  kubectl bosh exec -n bosh web/0 -- tail -n 100 /var/vcap/bosh/log/current`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeInstance(conn, &filter),
		RunE: func(command *cobra.Command, args []string) error {
			client, _, err := conn.newClient()
			if err != nil {
				return err
			}
			instance, err := instances.Find(command.Context(), client, filter, args[0])
			if err != nil {
				return err
			}
			options.Container = manifest.VMContainer
			if command.Flags().Changed("tail") && tail >= 0 {
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
	command.Flags().BoolVarP(&options.Previous, "previous", "p", false, "Print the log of the previous container")
	command.Flags().Int64Var(&tail, "tail", 0, "Number of `lines` to print from the end of the log (default: all)")
	return command
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/cpi/manifest"
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
		Long: "Run a command as root in an instance's VM with `kubectl exec`, and exit with the command's status. Requires permission to\n" +
			"create pods/exec.",
		Example: `  # Show the free space on the instance's persistent disk
  kubectl bosh exec -n bosh web/0 -- df -h /var/vcap/store

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

// noArguments rejects arguments, which are often values of a flag. hint names the flag.
func noArguments(hint string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s takes no arguments, but got %q; %s", command.Name(), args[0], hint)
		}
		return nil
	}
}

// oneInstance requires the argument INSTANCE.
func oneInstance(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s requires one INSTANCE; `kubectl bosh ps` lists them", command.Name())
	}
	return nil
}

func newSSHCommand(conn *connection) *cobra.Command {
	options := execOptions{stdin: true}
	var script string
	command := &cobra.Command{
		Use:   "ssh INSTANCE [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to an instance's VM as root",
		Long: "Open a login shell as root in an instance's VM, or run a command there, with `kubectl exec` through the API server.\n" +
			"This requires permission to create pods/exec, but no sshd, no SSH key and no running BOSH agent.",
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
			switch {
			case script != "" && len(remoteCommand) > 0:
				return errors.New("--command and a command after -- are mutually exclusive; remove one")
			case script != "":
				remoteCommand = []string{"/bin/bash", "-c", script}
			case len(remoteCommand) == 0:
				remoteCommand = []string{"/bin/bash", "--login"}
			}
			return options.run(command, conn, args[0], remoteCommand)
		},
	}
	addFilterFlags(command.Flags(), &options.filter)
	command.Flags().StringVarP(&script, "command", "c", "", "Shell `command` to run, as with bosh ssh")
	return command
}

// run runs the command in the instance. If its exit status is not 0, the error is an exitStatus.
func (o execOptions) run(command *cobra.Command, conn *connection, name string, remoteCommand []string) error {
	arguments := []string{"exec"}
	if o.stdin || o.tty {
		arguments = append(arguments, "--stdin")
	}
	if o.tty {
		arguments = append(arguments, "--tty")
	}
	return runKubectl(command, conn, o.filter, name, arguments, remoteCommand...)
}

// runKubectl runs kubectl with the arguments for the container of the instance's VM, and with the flags of this command that select the
// cluster, the user and the namespace. If its exit status is not 0, the error is an exitStatus.
func runKubectl(
	command *cobra.Command, conn *connection, filter instances.Filter, name string, arguments []string, remoteCommand ...string,
) error {
	client, _, err := conn.newClient()
	if err != nil {
		return err
	}
	instance, err := instances.Find(command.Context(), client, filter, name)
	if err != nil {
		return err
	}
	arguments = kubectlCommand(command, instance.Pod, arguments, remoteCommand...)
	return runCommand(context.WithoutCancel(command.Context()), arguments) // kubectl receives signals itself
}

// kubectlCommand returns the command that runKubectl runs for a VM Pod.
func kubectlCommand(command *cobra.Command, pod string, arguments []string, remoteCommand ...string) []string {
	arguments = append(append([]string{"kubectl"}, arguments...), changedFlags(command.InheritedFlags())...)
	arguments = append(arguments, pod, "--container", manifest.VMContainer)
	if len(remoteCommand) > 0 {
		arguments = append(append(arguments, "--"), remoteCommand...)
	}
	return arguments
}

// changedFlags returns the flags that are set.
func changedFlags(flags *pflag.FlagSet) (changed []string) {
	flags.VisitAll(func(flag *pflag.Flag) { // Visit omits inherited flags
		if !flag.Changed {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			changed = append(changed, "--"+flag.Name+"="+value)
		}
	})
	return changed
}

// agentLog is the log of the BOSH agent in a VM.
const agentLog = "/var/vcap/bosh/log/current"

func newLogsCommand(conn *connection) *cobra.Command {
	var filter instances.Filter
	var agent, follow, previous bool
	var tail int64
	var since time.Duration
	command := &cobra.Command{
		Use:   "logs INSTANCE",
		Short: "Print the log of an instance's init process",
		Long: `Print the log of the init process of an instance's VM. It shows how the VM booted, or why it did not boot. With --agent, print
the log of the BOSH agent, which is a file in the VM; this requires permission to create pods/exec. The jobs write their logs to
/var/vcap/sys/log.`,
		Example: `  # Follow the boot of a VM
  kubectl bosh logs -n bosh web/0 -f

  # Print the end of the log of the BOSH agent
  kubectl bosh logs -n bosh web/0 --agent --tail 100`,
		Args:              oneInstance,
		ValidArgsFunction: completeInstance(conn, &filter),
		RunE: func(command *cobra.Command, args []string) error {
			if agent {
				lines := "+1" // from the first one
				if command.Flags().Changed("tail") {
					lines = strconv.FormatInt(tail, 10)
				}
				show := []string{"tail", "--lines=" + lines, agentLog}
				if follow {
					show = append(show, "-F") // also after a rotation
				}
				return runKubectl(command, conn, filter, args[0], []string{"exec"}, show...)
			}
			arguments := []string{"logs", fmt.Sprintf("--follow=%t", follow), fmt.Sprintf("--previous=%t", previous)}
			if command.Flags().Changed("tail") {
				arguments = append(arguments, fmt.Sprintf("--tail=%d", tail))
			}
			if since > 0 {
				arguments = append(arguments, "--since="+since.String())
			}
			return runKubectl(command, conn, filter, args[0], arguments)
		},
	}
	addFilterFlags(command.Flags(), &filter)
	command.Flags().BoolVar(&agent, "agent", false, "Print the log of the BOSH agent instead")
	command.Flags().BoolVarP(&follow, "follow", "f", false, "Follow the log")
	command.Flags().BoolVarP(&previous, "previous", "p", false, "Print the log of the previous container")
	command.Flags().DurationVar(&since, "since", 0, "Print only lines newer than this `duration`, for example 10m (default: all)")
	command.Flags().Int64Var(&tail, "tail", 0, "Number of `lines` to print from the end of the log (default: all)")
	command.MarkFlagsMutuallyExclusive("agent", "previous")
	command.MarkFlagsMutuallyExclusive("agent", "since")
	return command
}

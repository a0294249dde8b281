package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
)

// envOptions are the flags of `kubectl bosh env`.
type envOptions struct {
	dir     string
	shell   string
	json    bool
	noProxy bool
	stop    bool
}

func newEnvCommand(conn *connection) *cobra.Command {
	var options envOptions
	command := &cobra.Command{
		Use:   "env",
		Short: "Print the variables for the BOSH CLI, and run a proxy in the background",
		Long: "Print the variables with which the BOSH CLI logs in to the director of an environment directory, as commands of your\n" +
			"shell. They contain the director's password. Unless a proxy for the directory runs, env starts one, which runs until\n" +
			"--stop, until `kubectl bosh down`, or until the host restarts. Its log is proxy.log in the directory.",
		Example: `  # bash, zsh
  eval "$(kubectl bosh env)"

  # fish
  kubectl bosh env | source

  # PowerShell
  kubectl bosh env --shell powershell | Out-String | Invoke-Expression

  # Stop the proxy
  kubectl bosh env --stop`,
		Args: noArguments("set the directory of the director with --dir"),
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, conn)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.dir, "dir", "", "Environment `directory` (default: "+defaultDirectorName+")")
	flags.StringVar(&options.shell, "shell", "", "Syntax of the output: "+strings.Join(shells, ", ")+" (default: that of $SHELL, or bash)")
	flags.BoolVar(&options.json, "json", false, "Print a JSON object, for programs")
	flags.BoolVar(&options.noProxy, "no-proxy", false, "Start no proxy; requires a network route to the director")
	flags.BoolVar(&options.stop, "stop", false, "Stop the proxy, and print nothing")
	command.MarkFlagsMutuallyExclusive("shell", "json", "stop")
	command.MarkFlagsMutuallyExclusive("no-proxy", "stop")
	return command
}

func (o envOptions) run(command *cobra.Command, conn *connection) error {
	if o.shell != "" && !slices.Contains(shells, o.shell) {
		return fmt.Errorf("--shell %q is unknown; use one of %s", o.shell, strings.Join(shells, ", "))
	}
	dir, err := environment.Dir{Path: cmp.Or(o.dir, defaultDirectorName)}.Absolute()
	if err != nil {
		return err
	}
	if o.stop {
		if _, err := conn.readSettings(dir); err != nil {
			return err
		}
		return stopBackgroundProxy(command.Context(), dir)
	}
	login, err := dir.Login()
	if err != nil {
		return err
	}
	settings, err := conn.readSettings(dir)
	if err != nil {
		return err
	}
	variables := login.Variables()
	if !o.noProxy {
		url, err := ensureBackgroundProxy(command, conn, dir, settings.Namespace)
		if err != nil {
			return err
		}
		variables = append(variables, environment.Variable{Name: "BOSH_ALL_PROXY", Value: url})
		variables = append(variables, environment.NoProxy(login.Address)...)
	}
	return o.print(command.OutOrStdout(), variables)
}

// shells are the known syntaxes of the output.
var shells = []string{"bash", "zsh", "fish", "powershell", "pwsh"}

func (o envOptions) print(out io.Writer, variables []environment.Variable) error {
	if o.json {
		object := map[string]string{}
		for _, variable := range variables {
			object[variable.Name] = variable.Value
		}
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(object)
	}
	var errs []error
	for _, variable := range variables {
		_, err := fmt.Fprintln(out, assignment(cmp.Or(o.shell, filepath.Base(os.Getenv("SHELL"))), variable))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// assignment returns the command that sets an environment variable in this shell.
func assignment(shell string, variable environment.Variable) string {
	switch shell {
	case "fish":
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(variable.Value)
		return "set -gx " + variable.Name + " '" + quoted + "'"
	case "powershell", "pwsh":
		return "$env:" + variable.Name + " = '" + strings.ReplaceAll(variable.Value, "'", "''") + "'"
	}
	return "export " + variable.Name + "=" + environment.QuoteCommand([]string{variable.Value})
}

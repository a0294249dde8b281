package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/cpi/collect"
	"bosh-kubernetes-cpi/kube"
)

func addConfigFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "config-path", "",
		"CPI configuration `file` of the director (cpi.json); cluster settings in it are ignored (default: built-in defaults)")
}

func newCollectCommand(conn *connection) *cobra.Command {
	var collector collect.Collector
	var configPath, output, directorUUID, knownPath string
	command := &cobra.Command{
		Use:   "collect",
		Short: "List or delete resources orphaned by interrupted calls",
		Long: "List the resources in the namespace that were orphaned by interrupted CPI calls, with the reason and the age of each.\n" +
			"With --confirm, delete or repair them. Disks are never deleted.\n\n" +
			"This does the same as `cpi -collect`, with the permissions of the kubeconfig's user.",
		Example: `  # List orphaned resources
  kubectl bosh collect -n bosh

  # Delete or repair them
  kubectl bosh collect -n bosh --confirm

  # Also list VMs and disks that the director does not know, for example after it was restored from a backup
  { bosh vms --json; bosh orphaned-vms --json; bosh instances --details --json; bosh disks --orphaned --json; } >known.json
  kubectl bosh collect -n bosh --director UUID --known known.json`,
		Args: noArguments("set the director with --director"),
		RunE: func(command *cobra.Command, _ []string) error {
			if err := validateOutput(output); err != nil {
				return err
			}
			var err error
			if collector.Config, err = loadConfig(configPath); err != nil {
				return err
			}
			if collector.Known, err = loadKnown(knownPath, directorUUID); err != nil {
				return err
			}
			client, directors, err := newCollectClient(command, conn, directorUUID)
			if err != nil {
				return err
			}
			var results []collect.Result
			var failed []error
			for _, collector.Director = range directors {
				found, err := collector.Collect(command.Context(), client)
				results, failed = append(results, found...), append(failed, err)
			}
			err = errors.Join(failed...)
			return errors.Join(err, printResults(command, collector, results, err == nil, output))
		},
	}
	flags := command.Flags()
	flags.StringVar(&directorUUID, "director", "",
		"`UUID` of the director, as printed by `bosh env` (default: all with VMs in the namespace)")
	flags.BoolVar(&collector.Confirm, "confirm", false, "Delete the listed resources, and repair the listed disks")
	flags.DurationVar(&collector.MinAge, "min-age", 0, "Minimum age before a resource counts as orphaned, for example 30m "+
		"(default: the longest configured timeout)")
	flags.StringVar(&knownPath, "known", "",
		"`file` with the VMs and disks that the director knows, as printed by `bosh`; others are listed (requires --director)")
	addConfigFlag(flags, &configPath)
	addOutputFlag(command, &output)
	return command
}

// newCollectClient returns a client, and the UUIDs of the directors: this one or, if it is empty, all with VMs in the namespace.
func newCollectClient(command *cobra.Command, conn *connection, directorUUID string) (*kube.Client, []string, error) {
	client, _, err := conn.newClient()
	if err != nil || directorUUID != "" {
		return client, []string{directorUUID}, err
	}
	directors, err := listDirectors(command, client)
	return client, directors, err
}

// loadKnown reads the file of --known. Without a path, the result is nil.
func loadKnown(path, directorUUID string) (collect.Known, error) {
	if path == "" {
		return nil, nil
	}
	if directorUUID == "" {
		return nil, errors.New("--known requires --director; set it to the UUID that `bosh env` prints")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	known, err := collect.ReadKnown(file)
	if err != nil {
		return nil, fmt.Errorf("--known %s: %w", path, err)
	}
	return known, nil
}

// listDirectors returns the UUIDs of the directors with VMs in the namespace. A director's own VM has the UUID of
// `bosh create-env`, which differs from that of its deployments.
func listDirectors(command *cobra.Command, client *kube.Client) ([]string, error) {
	found, err := instances.List(command.Context(), client, instances.Filter{})
	if err != nil {
		return nil, err
	}
	directors := map[string]bool{}
	for _, instance := range found {
		directors[instance.DirectorUUID] = true
	}
	if len(directors) == 0 {
		return nil, fmt.Errorf("no director has a VM in namespace %s; set --director to the UUID printed by `bosh env`", client.Namespace)
	}
	return slices.Sorted(maps.Keys(directors)), nil
}

func printResults(command *cobra.Command, collector collect.Collector, results []collect.Result, complete bool, output string) error {
	out := command.OutOrStdout()
	if output == jsonOutput {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]collect.Result{}, results...))
	}
	return collector.Write(out, results, complete, "--confirm")
}

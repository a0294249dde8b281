package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/kube"
)

func addFilterFlags(flags *pflag.FlagSet, filter *instances.Filter) {
	flags.StringVar(&filter.Director, "director", "", "`Name` or UUID of the director to select")
	flags.StringVar(&filter.Deployment, "deployment", "", "`Name` of the deployment to select")
}

func newPsCommand(conn *connection) *cobra.Command {
	var filter instances.Filter
	var output string
	var allNamespaces bool
	command := &cobra.Command{
		Use:   "ps",
		Short: "List instances with their Pods, nodes, addresses, disks and Services",
		Long: `List the instances of BOSH deployments in a namespace, with their states, Pods, nodes, addresses, disks and Services. Instance
names come from the director; an instance without a name is listed by its Pod name. Disks are shown with their state unless they are
attached.`,
		Example: `  # List the instances of one deployment, with their directors, IDs, disk CIDs and stemcells
  kubectl bosh ps -n bosh --deployment cf -o wide

  # List the instances of all namespaces
  kubectl bosh ps -A`,
		Args: noArguments("select a deployment with --deployment"),
		RunE: func(command *cobra.Command, _ []string) error {
			write, err := newPrinter(output, allNamespaces)
			if err != nil {
				return err
			}
			newClient := conn.newClient
			if allNamespaces {
				newClient = func() (*kube.Client, *rest.Config, error) { return conn.newNamespacedClient("") }
			}
			client, _, err := newClient()
			if err != nil {
				return err
			}
			found, err := instances.List(command.Context(), client, filter)
			if err != nil {
				return err
			}
			if len(found) == 0 && (output == "" || output == "wide") {
				fmt.Fprintln(command.ErrOrStderr(), describeNoInstances(command.Context(), conn, client.Namespace, filter))
				return nil
			}
			return write(command.OutOrStdout(), found)
		},
	}
	addFilterFlags(command.Flags(), &filter)
	command.Flags().StringVarP(&output, "output", "o", "", "Output `format`: wide, json, yaml or name (default: a table)")
	command.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "List the instances of all namespaces")
	_ = command.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// describeNoInstances reports that a namespace has no instances, and which namespaces have some, if the user may list them. An empty
// namespace means all namespaces.
func describeNoInstances(ctx context.Context, conn *connection, namespace string, filter instances.Filter) string {
	if namespace == "" {
		return "No instances found."
	}
	message := "No instances found in namespace " + namespace
	client, _, err := conn.newNamespacedClient("")
	if err != nil {
		return message + "."
	}
	found, err := instances.List(ctx, client, filter)
	if err != nil || len(found) == 0 {
		return message + "."
	}
	var namespaces []string
	for _, instance := range found {
		namespaces = append(namespaces, instance.Namespace)
	}
	slices.Sort(namespaces)
	return message + ". These namespaces have instances: " + strings.Join(slices.Compact(namespaces), ", ") +
		". Select one with -n, or use -A."
}

type printer func(io.Writer, []instances.Instance) error

func newPrinter(output string, allNamespaces bool) (printer, error) {
	selected := columns
	if allNamespaces {
		selected = slices.Concat([]column{{"NAMESPACE", func(i instances.Instance) string { return i.Namespace }}}, columns)
	}
	switch output {
	case "":
		return func(to io.Writer, found []instances.Instance) error {
			if haveSeveralDirectors(found) {
				selected = slices.Concat([]column{directorColumn}, selected)
			}
			return tablePrinter(selected)(to, found)
		}, nil
	case "wide":
		return tablePrinter(slices.Concat(selected, wideColumns)), nil
	case "name":
		return printNames, nil
	case "json":
		return printJSON, nil
	case "yaml":
		return printYAML, nil
	}
	return nil, fmt.Errorf("--output %q is not valid; use wide, json, yaml or name", output)
}

// instanceList is the document of the formats json and yaml.
type instanceList struct {
	Instances []instances.Instance `json:"instances"`
}

func printJSON(to io.Writer, found []instances.Instance) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "    ")
	return encoder.Encode(instanceList{Instances: append([]instances.Instance{}, found...)})
}

func printYAML(to io.Writer, found []instances.Instance) error {
	content, err := yaml.Marshal(instanceList{Instances: append([]instances.Instance{}, found...)})
	if err != nil {
		return err
	}
	_, err = to.Write(content)
	return err
}

func printNames(to io.Writer, found []instances.Instance) error {
	for _, instance := range found {
		fmt.Fprintln(to, "pod/"+instance.Pod)
	}
	return nil
}

// column is a column of a table: its header, and its value for an instance.
type column struct {
	header string
	value  func(instances.Instance) string
}

var columns = []column{
	{"DEPLOYMENT", func(i instances.Instance) string { return i.Deployment }},
	{"INSTANCE", instances.Instance.Name},
	{"STATE", func(i instances.Instance) string { return i.State }},
	{"RESTARTS", func(i instances.Instance) string { return fmt.Sprint(i.Restarts) }},
	{"POD", func(i instances.Instance) string { return i.Pod }},
	{"NODE", func(i instances.Instance) string { return i.Node }},
	{"ADDRESSES", func(i instances.Instance) string { return strings.Join(i.Addresses, ",") }},
	{"DISKS", func(i instances.Instance) string {
		return joinDisks(i, func(disk instances.Disk) string { return disk.Size })
	}},
	{"SERVICES", func(i instances.Instance) string { return strings.Join(i.Services, ",") }},
	{"AGE", func(i instances.Instance) string { return duration.HumanDuration(time.Since(i.Created.Time)) }},
}

var directorColumn = column{"DIRECTOR", func(i instances.Instance) string { return cmp.Or(i.Director, i.DirectorUUID) }}

func haveSeveralDirectors(found []instances.Instance) bool {
	return slices.ContainsFunc(found, func(i instances.Instance) bool { return i.DirectorUUID != found[0].DirectorUUID })
}

var wideColumns = []column{
	directorColumn,
	{"ID", func(i instances.Instance) string { return i.ID }},
	{"DISK CIDS", func(i instances.Instance) string {
		return joinDisks(i, func(disk instances.Disk) string { return disk.CID })
	}},
	{"STEMCELL", func(i instances.Instance) string { return i.Stemcell }},
}

// joinDisks formats and joins the instance's disks. It appends the state of disks that are not attached.
func joinDisks(i instances.Instance, format func(instances.Disk) string) string {
	var entries []string
	for _, disk := range i.Disks {
		entry := format(disk)
		if disk.State != "Attached" {
			entry += "(" + strings.ToLower(disk.State) + ")"
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ",")
}

func tablePrinter(selected []column) printer {
	return func(to io.Writer, found []instances.Instance) error {
		table := newTable(to)
		var headers []string
		for _, column := range selected {
			headers = append(headers, column.header)
		}
		fmt.Fprintln(table, strings.Join(headers, "\t"))
		for _, instance := range found {
			var cells []string
			for _, column := range selected {
				cells = append(cells, cmp.Or(column.value(instance), "<none>"))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
		return table.Flush()
	}
}

// newTable returns a writer that aligns columns like kubectl.
func newTable(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 6, 4, 3, ' ', 0) }

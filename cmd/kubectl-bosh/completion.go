package main

import (
	"strings"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
)

// completeInstance completes the first argument of a command with the names of existing instances.
func completeInstance(conn *connection, filter *instances.Filter) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, _, err := conn.newClient()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := instances.List(command.Context(), client, *filter)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, instance := range found {
			if strings.HasPrefix(instance.Name(), prefix) {
				names = append(names, cobra.CompletionWithDesc(instance.Name(), instance.Deployment+" "+instance.Pod))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

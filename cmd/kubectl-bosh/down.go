package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// downOptions are the flags of `kubectl bosh down`.
type downOptions struct {
	runOptions
	name  string
	force bool
}

func newDownCommand(connection *connection) *cobra.Command {
	var options downOptions
	command := &cobra.Command{
		Use:   "down",
		Short: "Take a director away that `up` has brought: delete-env, then what was made beside it",
		Long: "Takes away the director of a folder that `kubectl bosh up` has written: it runs `bosh delete-env` with the same files, and\n" +
			"then deletes the Services that outlive the director's VM, the rights, and the namespace if nothing is in it. What `up` has\n" +
			"not made stays, and so does the folder.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, connection)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.name, "name", "", "The director's name; "+usualName+" by default")
	options.addFlags(flags)
	flags.BoolVar(&options.force, "force", false, "Also where the namespace has VMs or disks that are not the director's own")
	return command
}

func (o *downOptions) run(command *cobra.Command, connection *connection) error {
	ctx, folder := command.Context(), environment.Folder{Path: cmp.Or(o.dir, o.name, usualName)}
	settings, found, err := folder.Settings()
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s has no up.yml: `kubectl bosh up` has brought nothing from there (--dir names another folder)", folder.Path)
	}
	if given := connection.given(); given != "" && given != settings.Namespace {
		return fmt.Errorf("the director of %s is in namespace %s, and not in %s", folder.Path, settings.Namespace, given)
	}
	s, _, err := newSession(command, connection, o.runOptions, folder, settings.Namespace)
	if err != nil {
		return err
	}
	s.settings, s.replaceServer = settings, unlessItWorks
	director, err := folder.Director()
	if err != nil {
		return err
	}
	others, err := s.others(ctx, director)
	if err != nil {
		return err
	}
	if len(others) > 0 && !o.force {
		return fmt.Errorf("namespace %s has what is not the director's own: %s; delete its deployments first (bosh delete-deployment), "+
			"or leave that behind with --force", settings.Namespace, strings.Join(others, ", "))
	}
	if err := o.confirm(command, "Delete the director "+settings.Director+" "+s.in()+", with its disk?"); err != nil {
		return err
	}
	return s.takeAway(ctx, director, others)
}

// others are VMs and disks of the namespace that create-env has not made.
func (s *session) others(ctx context.Context, director string) ([]string, error) {
	var found []string
	ours := manifest.LabelManagedBy + "=" + manifest.ManagedBy + "," + manifest.LabelRole + "="
	pods, err := s.cluster.Client.Pods.List(ctx, kube.Selection{Labels: ours + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if !manifest.BelongsTo(pod, director) {
			found = append(found, "VM "+pod.Name)
		}
	}
	claims, err := s.cluster.Client.PVCs.List(ctx, kube.Selection{Labels: ours + manifest.RoleDisk})
	for _, claim := range claims.Items {
		if !manifest.BelongsTo(claim, director) {
			found = append(found, "disk "+claim.Name)
		}
	}
	return found, err
}

// takeAway deletes the environment, and what was made beside it.
func (s *session) takeAway(ctx context.Context, director string, others []string) error {
	if director == "" {
		s.say("delete-env", "there is no state.json in "+s.folder.Path+", and so nothing that create-env has made")
	} else if err := s.deleteEnv(ctx, director); err != nil {
		return err
	}
	if err := s.restorePodSecurity(ctx, others); err != nil {
		return err
	}
	objects, err := s.folder.Objects()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		outcome, err := s.cluster.Remove(ctx, object)
		if err != nil {
			return fmt.Errorf("%s: %w", cluster.Title(object), err)
		}
		s.say(cluster.Title(object), outcome)
	}
	s.say(s.folder.Path, "stays: `kubectl bosh up` brings a director again by its files; it holds passwords and keys")
	return nil
}

func (s *session) deleteEnv(ctx context.Context, director string) error {
	if err := s.findBosh(); err != nil {
		return err
	}
	found, err := s.cluster.Look(ctx)
	if err != nil {
		return err
	}
	if err := s.writeCredentials(ctx, found.API); err != nil {
		return fmt.Errorf("credentials for delete-env: %w (`up` makes what they need again)", err)
	}
	if err := s.run(ctx, "delete-env"); err != nil {
		return err
	}
	return s.deleteServices(ctx, director)
}

// deleteServices deletes the director's own that outlive VMs.
func (s *session) deleteServices(ctx context.Context, director string) error {
	services, err := s.cluster.Client.Services.List(ctx, kube.Selection{Labels: manifest.DirectorSelector(director)})
	if err != nil {
		return err
	}
	for _, service := range services.Items {
		if !manifest.IsKept(service) {
			continue
		}
		if err := s.cluster.Client.Services.Delete(ctx, service); err != nil {
			return err
		}
		s.say("Service "+service.Namespace+"/"+service.Name, "deleted")
	}
	return nil
}

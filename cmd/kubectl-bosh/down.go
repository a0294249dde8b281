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
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
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
		Short: "Delete a BOSH director that up has created",
		Long: "Delete the BOSH director of a folder that `kubectl bosh up` has written, including the director's disk.\n\n" +
			"down runs `bosh delete-env` with the files in the folder. Then it deletes the director's Services that outlive VMs, the RBAC\n" +
			"objects, and the namespace if it is empty; objects that up has not created are kept. It asks for confirmation first.\n\n" +
			"down refuses to start while the namespace has VMs or disks of the director's deployments: delete the deployments, or use\n" +
			"--force. The folder is kept, and contains passwords and keys.",
		Example: `  # Delete the director of the folder "kubernetes"
  kubectl bosh down --dir kubernetes`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, connection)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.name, "name", "", "Director's `name` (default: "+defaultDirectorName+")")
	options.addFlags(flags)
	flags.BoolVar(&options.force, "force", false, "Delete the director even if the namespace has other VMs or disks, and leave those behind")
	return command
}

func (o *downOptions) run(command *cobra.Command, connection *connection) error {
	ctx, folder := command.Context(), environment.Folder{Path: cmp.Or(o.dir, o.name, defaultDirectorName)}
	settings, exists, err := folder.Settings()
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("folder %s has no up.yml, and so no director of `kubectl bosh up`; select another folder with --dir", folder.Path)
	}
	if explicit := connection.explicitNamespace(); explicit != "" && explicit != settings.Namespace {
		return fmt.Errorf("the director of folder %s is in namespace %s, not in %s", folder.Path, settings.Namespace, explicit)
	}
	s, _, err := newSession(command, connection, o.runOptions, folder, settings.Namespace)
	if err != nil {
		return err
	}
	s.settings, s.replaceServer = settings, replaceUnusable
	director, err := folder.DirectorUUID()
	if err != nil {
		return err
	}
	foreign, err := s.foreignResources(ctx, director)
	if err != nil {
		return err
	}
	if len(foreign) > 0 && !o.force {
		return fmt.Errorf("namespace %s has VMs or disks other than the director's own: %s; delete its deployments first "+
			"(`bosh delete-deployment`), or leave the VMs and disks behind with --force", settings.Namespace, strings.Join(foreign, ", "))
	}
	if err := o.confirm(command, "Delete the director "+settings.Director+" "+s.location()+", including its disk?"); err != nil {
		return err
	}
	return s.tearDown(ctx, director, foreign)
}

// foreignResources lists the VMs and disks of the namespace that create-env has not created.
func (s *session) foreignResources(ctx context.Context, director string) ([]string, error) {
	var found []string
	selector := manifest.LabelManagedBy + "=" + manifest.ManagedBy + "," + manifest.LabelRole + "="
	pods, err := s.cluster.Client.Pods.List(ctx, kube.Selection{Labels: selector + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if !manifest.BelongsTo(pod, director) {
			found = append(found, "VM "+pod.Name)
		}
	}
	pvcs, err := s.cluster.Client.PVCs.List(ctx, kube.Selection{Labels: selector + manifest.RoleDisk})
	for _, pvc := range pvcs.Items {
		if !manifest.BelongsTo(pvc, director) {
			found = append(found, "disk "+pvc.Name)
		}
	}
	return found, err
}

// tearDown deletes the environment, and then the objects that up has created.
func (s *session) tearDown(ctx context.Context, director string, foreign []string) error {
	if director == "" {
		s.report("delete-env", "skipped: "+s.folder.Path+" has no state.json, which means that create-env has created nothing")
	} else if err := s.runDeleteEnv(ctx, director); err != nil {
		return err
	}
	if err := s.restorePodSecurity(ctx, foreign); err != nil {
		return err
	}
	objects, err := s.folder.RightsObjects()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		outcome, err := s.cluster.Delete(ctx, object)
		if err != nil {
			return fmt.Errorf("delete %s: %w", cluster.Title(object), err)
		}
		s.report(cluster.Title(object), outcome)
	}
	s.report(s.folder.Path, "kept: it contains passwords and keys, and `kubectl bosh up` can create the director again from it")
	return nil
}

func (s *session) runDeleteEnv(ctx context.Context, director string) error {
	if err := s.checkBOSHCLI(); err != nil {
		return err
	}
	inspection, err := s.cluster.Inspect(ctx)
	if err != nil {
		return err
	}
	if err := s.writeCredentials(ctx, inspection.APIURL); err != nil {
		return fmt.Errorf("write credentials for delete-env: %w; `kubectl bosh up` restores the objects that they depend on", err)
	}
	if err := s.runBOSH(ctx, "delete-env"); err != nil {
		return err
	}
	return s.deleteServices(ctx, director)
}

// deleteServices deletes the Services of create-env's CPI that outlive VMs.
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
		s.report("Service "+service.Namespace+"/"+service.Name, "deleted")
	}
	return nil
}

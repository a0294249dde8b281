package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// downOptions are the flags of `kubectl bosh down`.
type downOptions struct {
	runOptions
	force bool
}

func newDownCommand(conn *connection) *cobra.Command {
	var options downOptions
	command := &cobra.Command{
		Use:   "down",
		Short: "Delete a BOSH director created by up",
		Long: "Delete the BOSH director that `kubectl bosh up` created from an environment directory, including the director's disk.\n\n" +
			"down asks for confirmation, and runs `bosh delete-env` with the files in the directory. Then it deletes the Services that\n" +
			"outlive the director's VM, the RBAC objects and the ResourceQuota, and the namespace if it is empty. It keeps objects that\n" +
			"up did not create. It also keeps the directory, which contains passwords and keys.\n\n" +
			"down fails if the namespace has VMs or disks other than the director's own. Delete the deployments first, or use --force.",
		Example: `  # Delete the director created from the directory "kubernetes"
  kubectl bosh down --dir kubernetes`,
		Args: noArguments("set the directory of the director with --dir"),
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, conn)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	options.addFlags(flags, defaultDirectorName)
	flags.BoolVar(&options.force, "force", false, "Delete the director even if the namespace has other VMs or disks, and leave them behind")
	return command
}

func (o *downOptions) run(command *cobra.Command, conn *connection) error {
	ctx, dir := command.Context(), environment.Dir{Path: cmp.Or(o.dir, defaultDirectorName)}
	if _, err := conn.readSettings(dir); err != nil {
		return err
	}
	lock, unlock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, err := conn.readSettings(dir)
	if err != nil {
		return err
	}
	s, _, err := newEnvironmentRun(command, conn, o.runOptions, dir, settings.Namespace)
	if err != nil {
		return err
	}
	s.settings, s.lock, s.replaceServer = settings, lock, replaceUnusable
	recorded, err := dir.DirectorUUID()
	if err != nil {
		return err
	}
	director := cmp.Or(recorded, settings.DeletedDirector)
	deployed, err := s.listDeployedResources(ctx, director)
	if err != nil {
		return err
	}
	if len(deployed) > 0 && !o.force {
		return fmt.Errorf("namespace %s has VMs or disks other than the director's own: %s; delete the deployments first "+
			"(`bosh delete-deployment`), or leave the VMs and disks, for example of another director, behind with --force",
			settings.Namespace, strings.Join(deployed, ", "))
	}
	exists, err := s.cluster.NamespaceExists(ctx)
	if err == nil && exists && recorded != "" {
		err = s.checkDeleteEnv(ctx)
	}
	if err != nil {
		return err
	}
	question := "Delete the director " + settings.Director + " " + s.location() + ", including its disk, and the namespace if it is empty?"
	if err := o.confirm(command, question); err != nil {
		return err
	}
	switch {
	case recorded != "" && !exists:
		s.report("delete-env", "skipped: namespace "+settings.Namespace+" does not exist")
		if err := dir.RemoveState(); err != nil {
			return err
		}
	case recorded != "":
		if err := s.runDeleteEnv(ctx, recorded); err != nil {
			return err
		}
	case director != "":
		s.report("delete-env", "skipped: an earlier run deleted the director")
	default:
		s.report("delete-env", "skipped: "+dir.Path+" has no state.json, so there is no director")
	}
	return s.tearDown(ctx, director, deployed)
}

// listDeployedResources lists the VMs and disks in the namespace that create-env did not create.
func (r *environmentRun) listDeployedResources(ctx context.Context, director string) ([]string, error) {
	var found []string
	selector := manifest.ManagedSelector + "," + manifest.LabelRole
	pods, err := r.cluster.Client.Pods.List(ctx, kube.Selection{Labels: selector + "=" + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if !manifest.BelongsTo(pod, director) && !manifest.BelongsTo(pod, preflight.ProbeDirector) {
			found = append(found, "VM "+pod.Name)
		}
	}
	roles := " in (" + manifest.RoleDisk + "," + manifest.RoleEphemeralDisk + ")"
	pvcs, err := r.cluster.Client.PVCs.List(ctx, kube.Selection{Labels: selector + roles})
	if err != nil {
		return nil, err
	}
	for _, pvc := range pvcs.Items {
		name := "disk " + pvc.Name
		if manifest.HasRole(pvc, manifest.RoleEphemeralDisk) {
			name = "VM " + manifest.VMOf(pvc) // with disk_strategy: recreate; its Pod may be missing
		}
		if !manifest.BelongsTo(pvc, director) && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found, nil
}

// tearDown deletes the objects created by up, without the director.
func (r *environmentRun) tearDown(ctx context.Context, director string, deployed []string) error {
	if err := stopBackgroundProxy(ctx, r.dir); err != nil {
		r.report("proxy", "still runs: "+err.Error())
	}
	if director != "" {
		if err := r.deleteServices(ctx, director); err != nil {
			return err
		}
	}
	if err := r.restorePodSecurity(ctx, deployed); err != nil {
		return err
	}
	objects, err := r.dir.PermissionsObjects()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		if len(deployed) > 0 && object.GetKind() != "Namespace" {
			r.report(cluster.KindAndName(object), "kept for the remaining VMs and disks")
			continue
		}
		if err := r.deleteObject(ctx, object); err != nil {
			return err
		}
	}
	if err := r.liftRestrictions(ctx, deployed); err != nil {
		return err
	}
	r.report(r.dir.Path, "kept: it contains passwords and keys, and `kubectl bosh up` can recreate the director from it")
	return nil
}

// deleteObject deletes an object that up created, and prints the outcome.
func (r *environmentRun) deleteObject(ctx context.Context, object *unstructured.Unstructured) error {
	outcome, err := r.cluster.Delete(ctx, object)
	if apierrors.IsForbidden(err) {
		outcome, err = "kept: you do not have permission to delete it", nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", cluster.KindAndName(object), err)
	}
	r.report(cluster.KindAndName(object), outcome)
	return nil
}

// checkDeleteEnv returns an error if this host does not have what delete-env requires.
func (r *environmentRun) checkDeleteEnv(ctx context.Context) error {
	vars, err := r.dir.ReadVars()
	if err != nil {
		return err
	}
	return errors.Join(r.options.checkRequirements(ctx), checkFreeSpace(r.dir), r.dir.CheckFiles(r.settings, vars, "kubernetes_cpi_url"))
}

func (r *environmentRun) runDeleteEnv(ctx context.Context, director string) error {
	if err := r.writeCredentials(ctx); err != nil {
		return fmt.Errorf("write credentials for delete-env: %w; `kubectl bosh up` restores the required objects", err)
	}
	// delete-env deletes state.json. If it is then interrupted, or a later step fails, the next run must know the director.
	r.settings.DeletedDirector = director
	if err := r.dir.WriteSettings(r.settings); err != nil {
		return err
	}
	return r.runBOSH(ctx, "delete-env")
}

// deleteServices deletes the Services that the local CPI keeps when it recreates the director's VM.
func (r *environmentRun) deleteServices(ctx context.Context, director string) error {
	services, err := r.cluster.Client.Services.List(ctx, kube.Selection{Labels: manifest.DirectorSelector(director)})
	if err != nil {
		return err
	}
	for _, service := range services.Items {
		if !manifest.IsKept(service) {
			continue
		}
		if err := r.cluster.Client.Services.Delete(ctx, service); err != nil {
			return err
		}
		r.report("Service "+service.Namespace+"/"+service.Name, "deleted")
	}
	r.settings.DeletedDirector = ""
	return r.dir.WriteSettings(r.settings)
}

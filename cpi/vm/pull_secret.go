package vm

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// usePullSecret lets the machine's node pull the image with the registry's credentials, if it has any.
func (s *Session) usePullSecret(vm *manifest.VM) error {
	name, _, err := s.Stemcell.PullSecret(vm.Image)
	if err == nil && name != "" {
		vm.PullSecrets = append(vm.PullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return err
}

// EnsurePullSecret sees to it that the Secret with which nodes pull this image is there and holds what
// is configured now. Pods find it by its name, so that machines made before get new credentials, too.
func (s *Session) EnsurePullSecret(image string) error {
	name, content, err := s.Stemcell.PullSecret(image)
	if err != nil || name == "" {
		return err
	}
	desired := manifest.PullSecret(name, s.Namespace, s.Director, content)
	return s.Secrets.CreateOrPatch(s.Ctx, name, func(existing *corev1.Secret, exists bool) (plan kube.Plan[*corev1.Secret], err error) {
		switch {
		case !exists:
			plan.Create = desired
		case existing.Labels[manifest.LabelRole] != manifest.RolePullSecret:
			err = call.Invalid("stemcell.registry.pull_secret.name %s is the name of a Secret that the CPI did not make: "+
				"choose another, or leave it out and name that Secret in the VMs' cloud_properties.image_pull_secrets", name)
		case !maps.EqualFunc(existing.Data, desired.Data, bytes.Equal):
			s.Log.Info("changing the pull Secret: the registry's credentials have changed", "secret", name)
			plan.Patch, err = manifest.UpdatePullSecret(existing, desired)
		}
		return plan, err
	})
}

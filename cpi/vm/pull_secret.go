package vm

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// usePullSecret adds the pull Secret of the image's registry to the VM, if the registry is configured with credentials.
func (s *Session) usePullSecret(vm *manifest.VM) error {
	name, _, err := s.Stemcell.PullSecret(vm.Image)
	if err == nil && name != "" {
		vm.PullSecrets = append(vm.PullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return err
}

// EnsurePullSecret ensures that the pull Secret of the image exists and has the configured credentials. Pods refer to the Secret by name,
// so that existing VMs use new credentials, too.
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
			err = call.CodeInvalidConfig.Errorf("stemcell.registry.pull_secret.name %s names a Secret that the CPI did not create; choose another "+
				"name, or remove it and list that Secret in cloud_properties.image_pull_secrets of the VMs", name)
		case !maps.EqualFunc(existing.Data, desired.Data, bytes.Equal):
			s.Log.Info("updating the pull Secret, because the registry credentials changed", "secret", name)
			plan.Patch, err = manifest.UpdatePullSecret(existing, desired)
		}
		return plan, err
	})
}

package call

import (
	"bytes"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// PullSecrets returns the reference to the pull Secret of the image's registry, if the registry is configured with credentials.
func PullSecrets(options stemcell.Options, references ...string) ([]corev1.LocalObjectReference, error) {
	name, _, err := pullSecret(options, references)
	if err != nil || name == "" {
		return nil, err
	}
	return []corev1.LocalObjectReference{{Name: name}}, nil
}

// pullSecret returns the name and the content of the pull Secret, or "" if none of the images is in its registry.
func pullSecret(options stemcell.Options, references []string) (name string, content []byte, err error) {
	for _, reference := range references {
		if name, content, err = options.PullSecret(reference); err != nil || name != "" {
			return name, content, err
		}
	}
	return "", nil, nil
}

// EnsurePullSecret ensures that the pull Secret of the images exists and has the configured credentials. Pods refer to the Secret by name,
// so that existing VMs use new credentials, too.
func (c *Call) EnsurePullSecret(options stemcell.Options, references ...string) error {
	name, content, err := pullSecret(options, references)
	if err != nil || name == "" {
		return err
	}
	desired := manifest.PullSecret(name, c.Namespace, c.Director, content)
	return c.Secrets.CreateOrPatch(c.Ctx, name, func(existing *corev1.Secret, exists bool) (plan kube.Plan[*corev1.Secret], err error) {
		switch {
		case !exists:
			plan.Create = desired
		case !manifest.HasRole(existing, manifest.RolePullSecret):
			err = CodeInvalidConfig.Errorf("kubernetes.stemcell.registry.pull_secret.name %s names a Secret that the CPI did not create; "+
				"use another name, or unset the property and add the Secret to cloud_properties.image_pull_secrets of the VMs", name)
		case !maps.EqualFunc(existing.Data, desired.Data, bytes.Equal):
			c.Log.Info("updating the pull Secret, because the registry credentials changed", "secret", name)
			plan.Patch = manifest.UpdatePullSecretPatch(existing, desired)
		}
		return plan, err
	})
}

// PrepareHelperPod applies the PodOptions to a helper Pod or an attachment Pod. Its image of bosh-node may require a pull Secret that the
// VM, from which the Pod has its references, was created without: PrepareHelperPod adds the reference, and ensures the Secret.
func (c *Call) PrepareHelperPod(pod *corev1.Pod) error {
	c.PodOptions.ApplyToHelperPod(pod)
	image := manifest.NodeImage(pod)
	references, err := PullSecrets(c.NodeImage.Options, image)
	if err != nil || len(references) == 0 {
		return err
	}
	if !slices.Contains(pod.Spec.ImagePullSecrets, references[0]) {
		pod.Spec.ImagePullSecrets = append(slices.Clone(pod.Spec.ImagePullSecrets), references...)
	}
	return c.EnsurePullSecret(c.NodeImage.Options, image)
}

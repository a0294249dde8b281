package attacks

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

const (
	foreignImage   = "docker.io/library/debian:13"
	otherNodeImage = "registry.example.com/bosh-node@sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
	otherStemcell  = "registry.example.com/stemcells/other:latest" // that the default limits admit
)

// helperImageAttacks returns attacks with another program than bosh-node of this release, in its image or in the volume with its image.
func helperImageAttacks() []Attack {
	volumeAttack := func(rules, property string, change func(*corev1.Pod, *corev1.Volume, *corev1.VolumeMount)) Attack {
		return rejected(rules, "helper Pod "+property, "", rootOnNode, tryHelperPod(func(pod *corev1.Pod) {
			volumes, mounts := pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts
			isImage := func(v corev1.Volume) bool { return v.Image != nil }
			isMount := func(m corev1.VolumeMount) bool { return m.MountPath == api.VolumeDir }
			change(pod, &volumes[slices.IndexFunc(volumes, isImage)], &mounts[slices.IndexFunc(mounts, isMount)])
		}))
	}
	imageAttack := func(rules, property, image string) Attack {
		return rejected(rules, "reboot Pod with "+property, "", rootOnNode, func(ctx context.Context, a *Attacker) error {
			return a.createPod(ctx, manifest.RebootPod(a.existingVM, "", image).Pod)
		})
	}
	return []Attack{
		volumeAttack("node-images", "with another digest of bosh-node", func(_ *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) { v.Image.Reference = otherNodeImage }),
		volumeAttack("node-images", "with an image volume from another registry", func(_ *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) { v.Image.Reference = foreignImage }),
		volumeAttack("node-images", "with bosh-node by tag", func(_ *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) {
			v.Image.Reference = "registry.example.com/bosh-node:1"
		}),
		volumeAttack("program", "with a program in its stemcell instead of bosh-node", func(pod *corev1.Pod, _ *corev1.Volume, _ *corev1.VolumeMount) {
			withContainer(func(c *corev1.Container) {
				c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == api.VolumeDir })
			})(pod)
		}),
		volumeAttack("program", "with an emptyDir instead of bosh-node", func(_ *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) {
			v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}),
		volumeAttack("program", "with its disk instead of bosh-node", func(_ *corev1.Pod, _ *corev1.Volume, m *corev1.VolumeMount) {
			m.Name = "disk"
		}),
		volumeAttack("program", "with a writable mount of bosh-node", func(_ *corev1.Pod, _ *corev1.Volume, m *corev1.VolumeMount) { m.ReadOnly = false }),
		volumeAttack("mounts", "with a subpath of the image of bosh-node", func(_ *corev1.Pod, _ *corev1.Volume, m *corev1.VolumeMount) { m.SubPath = "more" }),
		volumeAttack("program", "with a sidecar that replaces bosh-node", func(pod *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) {
			v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			addSidecar(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: v.Name, MountPath: api.VolumeDir}}})(pod)
		}).withLimit("sidecars", sidecarImage),
		volumeAttack("sidecars", "with a sidecar that mounts bosh-node", func(pod *corev1.Pod, v *corev1.Volume, _ *corev1.VolumeMount) {
			addSidecar(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: v.Name, MountPath: api.VolumeDir}}})(pod)
		}).withLimit("sidecars", sidecarImage),
		rejected("images", "helper Pod with an image from another registry", "", rootOnNode, tryHelperPod(withContainer(func(c *corev1.Container) { c.Image = foreignImage }))),
		possible("helper Pod with any image allowed by `images`, which then provides `mkfs`", "", "let only your pipeline push there", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.Image = otherStemcell
		}))),
		imageAttack("node-images", "an image from another registry", foreignImage),
		imageAttack("node-images", "an image that `images` admits", stemcellImage),
		imageAttack("node-images", "another digest of bosh-node", otherNodeImage),
	}
}

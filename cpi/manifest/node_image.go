package manifest

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// nodeImageVolume is the name of the volume with the image of bosh-node, the program that runs on nodes.
const nodeImageVolume = "bosh-node"

// mountNodeImage mounts the image of bosh-node in the first container of the Pod, which has the image of a stemcell. The kubelet mounts it
// read-only.
func mountNodeImage(pod *corev1.Pod, image string) {
	addVolume(pod, corev1.VolumeMount{Name: nodeImageVolume, MountPath: api.VolumeDir, ReadOnly: true}, corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullIfNotPresent},
	})
}

// NodeImage returns the image of bosh-node that the Pod mounts or runs, or "".
func NodeImage(pod *corev1.Pod) string {
	if own := OwnContainer(pod); len(own.Command) > 0 && own.Command[0] == api.InImage {
		return own.Image
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == nodeImageVolume && volume.Image != nil {
			return volume.Image.Reference
		}
	}
	return ""
}

// inVolume returns the command of a container that mounts the image of bosh-node.
func inVolume(arguments ...string) []string { return append([]string{api.InVolume}, arguments...) }

// inImage returns the command of a container of the image of bosh-node.
func inImage(arguments ...string) []string { return append([]string{api.InImage}, arguments...) }

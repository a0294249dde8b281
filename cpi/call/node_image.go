package call

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// EnsureNodeImage ensures that the registry for heavy stemcells has the image of bosh-node. It only logs an error, because the call can
// succeed without the registry, on nodes that have the image.
func (c *Call) EnsureNodeImage() {
	if err := c.NodeImage.Ensure(c.Ctx); err != nil {
		c.Log.Warn("cannot push the image of bosh-node; Pods start only on nodes that have the image", "error", err.Error())
	}
}

// NodeImageReference returns the image of bosh-node for the Pods that the call creates.
func (c *Call) NodeImageReference() (string, error) {
	reference, err := c.NodeImage.Reference()
	if err != nil {
		return "", CodeNodeImageUnavailable.Wrap(err, false)
	}
	return reference, nil
}

// NodeImageError returns the error of a Pod on a node that cannot pull the image of bosh-node, or nil. It contains the kubelet's message,
// with the registry's.
func NodeImageError(pod *corev1.Pod) error {
	message := kube.ImagePullError(pod, manifest.OwnContainerName(pod))
	reference := manifest.NodeImage(pod)
	if reference == "" || !strings.Contains(message, reference) {
		return nil
	}
	return CodeNodeImageUnavailable.Errorf("cannot pull image %s of bosh-node: %s; push it with "+
		"`/var/vcap/jobs/kubernetes_cpi/bin/cpi -push-node-image` on the director's VM, or copy it from the release, "+
		"see docs/guides/stemcells.md#image-of-bosh-node", reference, message)
}

// StartError returns the error of a Pod that cannot start. Unless the cause has a code of its own, its code is code.
func (c *Call) StartError(code Code, pod *corev1.Pod, message string) error {
	if err := NodeImageError(pod); err != nil {
		return err
	}
	return code.Errorf("%s: %s", message, c.DiagnosePod(pod))
}

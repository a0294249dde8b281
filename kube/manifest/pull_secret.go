package manifest

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// PullSecret is the Secret with which nodes pull images from a registry. It belongs to no VM, since a
// node may have to pull again for any of them.
func PullSecret(name, namespace, director string, content []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: newObjectMeta(name, namespace, director, RolePullSecret),
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: content},
	}
}

// UpdatePullSecret is the strategic merge patch that gives the Secret that is there the content of the other. It is there all the
// time, so that no pull in between goes without.
func UpdatePullSecret(existing, desired *corev1.Secret) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": existing.UID}, "data": desired.Data})
}

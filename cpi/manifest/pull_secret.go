package manifest

import corev1 "k8s.io/api/core/v1"

// PullSecret returns the Secret with which nodes pull images from a registry. content is a .dockerconfigjson file. No VM owns the
// Secret, because a node may pull an image again for any VM.
func PullSecret(name, namespace, director string, content []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: newObjectMeta(name, namespace, director, RolePullSecret),
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: content},
	}
}

// UpdatePullSecretPatch returns the strategic merge patch that replaces the content of the existing Secret, if it is unchanged since it
// was read. If the Secret were deleted and created, a pull in between would fail.
func UpdatePullSecretPatch(existing, desired *corev1.Secret) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{"uid": existing.UID, "resourceVersion": existing.ResourceVersion}, "data": desired.Data,
	})
}

package manifest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/node"
)

// AdmissionScripts returns the ConfigMap with the programs of attachment Pods and helper Pods. The admission policy
// (manifests/admission-policy.yaml) allows no others in the ConfigMap's namespace.
func AdmissionScripts() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "bosh-cpi-scripts"},
		Data:       node.HelperPrograms(),
	}
}

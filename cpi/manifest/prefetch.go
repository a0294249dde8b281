package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/extension"
)

// Prefetch makes nodes pull a stemcell's image before the first VM needs it.
type Prefetch struct {
	Namespace string
	Director  string
	Stemcell  string // the stemcell's CID
	Reference string // the CID without the platform: see PrefetchName
	Image     string // the image reference for nodes

	Architectures []string // architectures of the image; empty if unknown
	NodeSelector  map[string]string
	Tolerations   []corev1.Toleration
	PullSecrets   []corev1.LocalObjectReference
}

// nobodyUID is the ID of the user and group nobody, which owns no files.
const nobodyUID = 65534

// PrefetchName returns the name of the prefetch DaemonSet of this image and director. It does not depend on other settings.
func PrefetchName(director, reference string) string {
	sum := sha256.Sum256([]byte(director + "\n" + reference))
	return RolePrefetch + "-" + hex.EncodeToString(sum[:8])
}

// Pod returns the Pod for each node: the kubelet pulls the image, and keeps it during garbage collection because the Pod uses it.
// The Pod only sleeps, without privileges and without access to the node. It complies with the Pod Security Standard "restricted".
func (p Prefetch) Pod() *corev1.Pod {
	meta := newObjectMeta("", p.Namespace, p.Director, RolePrefetch)
	meta.Labels[LabelPrefetch] = PrefetchName(p.Director, p.Reference)
	var vm VM
	vm.AddPlatformAffinity(p.Architectures...)
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:            RolePrefetch,
				Image:           p.Image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"/bin/sleep", "infinity"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: mebibytes(8),
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					ReadOnlyRootFilesystem:   new(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(nobodyUID)), RunAsGroup: new(int64(nobodyUID)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TerminationGracePeriodSeconds: new(int64(1)), // as PID 1, sleep ignores SIGTERM
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			NodeSelector:                  p.NodeSelector,
			Affinity:                      vm.Affinity,
			Tolerations:                   p.Tolerations,
			ImagePullSecrets:              p.PullSecrets,
		},
	}
}

// PrefetchedImage returns the image that the prefetch DaemonSet makes nodes pull.
func PrefetchedImage(set *extension.DaemonSet) string {
	return containerByName(set.Spec.Template.Spec, RolePrefetch).Image
}

// DaemonSet returns the prefetch DaemonSet with this Pod as its template. AnnotationDigest is equal for equal templates.
func (p Prefetch) DaemonSet(pod *corev1.Pod) (*extension.DaemonSet, error) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	name := PrefetchName(p.Director, p.Reference)
	meta := newObjectMeta(name, p.Namespace, p.Director, RolePrefetch)
	meta.Annotations = map[string]string{AnnotationStemcell: p.Stemcell, AnnotationDigest: hex.EncodeToString(sum[:])}
	return &extension.DaemonSet{
		ObjectMeta: meta,
		Spec: extension.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelPrefetch: name}},
			Template: template,
		},
	}, nil
}

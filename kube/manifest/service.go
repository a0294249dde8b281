package manifest

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelService is the label of the machines behind the Service of this name.
func LabelService(name string) string { return servicePrefix + name }

// Service is a stable address for one machine or several.
type Service struct {
	Name  string
	Fixed bool // the name is the operator's: another machine may have the Service already
	Keep  bool // it stays when its last machine goes

	Type              corev1.ServiceType
	ClusterIP         string // "None" for a headless Service; the cluster's choice when empty
	ExternalIPs       []string
	LoadBalancerIP    string
	LoadBalancerClass *string
	SourceRanges      []string
	Ports             []corev1.ServicePort
	Labels            map[string]string
	Annotations       map[string]string

	ExternalTrafficPolicy    corev1.ServiceExternalTrafficPolicy // Kubernetes' default when empty
	SessionAffinity          corev1.ServiceAffinity              // likewise
	PublishNotReadyAddresses bool
}

// Object is the Service as its first machine makes it.
//
// It belongs to the Pods of all its machines: the garbage collector removes it with the last of them,
// whatever crashes when, and never before.
func (s Service) Object(pod *corev1.Pod, director string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: s.meta(pod, director),
		Spec: corev1.ServiceSpec{
			Type:                     s.Type,
			ClusterIP:                s.ClusterIP,
			ExternalIPs:              s.ExternalIPs,
			LoadBalancerIP:           s.LoadBalancerIP,
			LoadBalancerClass:        s.LoadBalancerClass,
			LoadBalancerSourceRanges: s.SourceRanges,
			Ports:                    s.Ports,
			Selector:                 map[string]string{LabelService(s.Name): serviceLabelValue},
			ExternalTrafficPolicy:    s.ExternalTrafficPolicy,
			SessionAffinity:          s.SessionAffinity,
			PublishNotReadyAddresses: s.PublishNotReadyAddresses,
		},
	}
}

// serviceLabelValue is the value of the labels that put a machine behind a Service.
const serviceLabelValue = "true"

func (s Service) meta(pod *corev1.Pod, director string) metav1.ObjectMeta {
	meta := newObjectMeta(s.Name, pod.Namespace, director, RoleService)
	for key, value := range s.Labels {
		if _, own := meta.Labels[key]; !own {
			meta.Labels[key] = value
		}
	}
	meta.Annotations = map[string]string{}
	maps.Copy(meta.Annotations, s.Annotations)
	if s.Keep {
		meta.Annotations[AnnotationKeep] = "true"
	} else {
		meta.OwnerReferences = []metav1.OwnerReference{OwnerReference(pod)}
	}
	return meta
}

// JoinPatch is the strategic merge patch by which another machine joins the Service that is there and
// gives it its own ports. What the patch does not mention stays: the cluster IP, the load balancer, and
// the node ports of ports with the same names.
func (s Service) JoinPatch(existing *corev1.Service, pod *corev1.Pod, director string) ([]byte, error) {
	meta := s.meta(pod, director)
	ports := []any{map[string]any{"$patch": "replace"}}
	for _, port := range s.Ports {
		ports = append(ports, port)
	}
	spec := map[string]any{
		"type": s.Type, "ports": ports, "externalIPs": s.ExternalIPs, "loadBalancerSourceRanges": s.SourceRanges,
		"selector":              map[string]string{LabelService(s.Name): serviceLabelValue},
		"externalTrafficPolicy": nil, "sessionAffinity": nil, "publishNotReadyAddresses": s.PublishNotReadyAddresses, // nil: the defaults
	}
	if s.ExternalTrafficPolicy != "" {
		spec["externalTrafficPolicy"] = s.ExternalTrafficPolicy
	}
	if s.SessionAffinity != "" {
		spec["sessionAffinity"] = s.SessionAffinity
	}
	if s.ClusterIP != "" {
		spec["clusterIP"] = s.ClusterIP // the API server refuses to change it, and says so
	}
	if s.LoadBalancerIP != "" {
		spec["loadBalancerIP"] = s.LoadBalancerIP
	}
	if s.LoadBalancerClass != nil {
		spec["loadBalancerClass"] = s.LoadBalancerClass
	}
	annotations := map[string]any{AnnotationKeep: nil}
	for key, value := range meta.Annotations {
		annotations[key] = value
	}
	changed := map[string]any{"uid": existing.UID, "labels": meta.Labels, "annotations": annotations}
	if s.Keep {
		changed["ownerReferences"] = []any{map[string]any{"$patch": "replace"}}
	} else {
		changed["ownerReferences"] = meta.OwnerReferences // merged by UID with those of other machines
	}
	return json.Marshal(map[string]any{"metadata": changed, "spec": spec})
}

// IsKept reports that the Service stays without machines.
func IsKept(service *corev1.Service) bool { return service.Annotations[AnnotationKeep] == "true" }

// IsBehindService reports whether the machine is behind the Service of this name.
func IsBehindService(service string, pod *corev1.Pod) bool {
	return pod.Labels[LabelService(service)] == serviceLabelValue
}

package manifest

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceLabel returns the label of the VMs behind the Service of this name.
func ServiceLabel(name string) string { return servicePrefix + name }

// Service describes a Kubernetes Service that routes to one or more VMs.
type Service struct {
	Name       string
	CustomName bool // the operator chose the name: other VMs may share the Service
	Keep       bool // the Service stays when its last VM is deleted

	Type              corev1.ServiceType
	ClusterIP         string // "None" for a headless Service; if empty, the cluster assigns one
	ExternalIPs       []string
	LoadBalancerIP    string
	LoadBalancerClass string
	SourceRanges      []string
	Ports             []corev1.ServicePort
	Labels            map[string]string
	Annotations       map[string]string

	ExternalTrafficPolicy    corev1.ServiceExternalTrafficPolicy // if empty, Kubernetes' default
	SessionAffinity          corev1.ServiceAffinity              // likewise
	PublishNotReadyAddresses bool
}

// Object returns the Service for its first VM. Unless Keep is set, it is owned by this VM's Pod, and JoinPatch adds further owners:
// Kubernetes deletes it with the last of them, even if a call is interrupted, and never earlier.
func (s Service) Object(pod VMPod, director string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: s.meta(pod, director),
		Spec: corev1.ServiceSpec{
			Type:                     s.Type,
			ClusterIP:                s.ClusterIP,
			ExternalIPs:              s.ExternalIPs,
			LoadBalancerIP:           s.LoadBalancerIP,
			LoadBalancerClass:        optional(s.LoadBalancerClass),
			LoadBalancerSourceRanges: s.SourceRanges,
			Ports:                    s.Ports,
			Selector:                 map[string]string{ServiceLabel(s.Name): serviceLabelValue},
			ExternalTrafficPolicy:    s.ExternalTrafficPolicy,
			SessionAffinity:          s.SessionAffinity,
			PublishNotReadyAddresses: s.PublishNotReadyAddresses,
		},
	}
}

// serviceLabelValue is the value of ServiceLabel labels.
const serviceLabelValue = "true"

func (s Service) meta(pod VMPod, director string) metav1.ObjectMeta {
	meta := newObjectMeta(s.Name, pod.Namespace, director, RoleService)
	addMissing(meta.Labels, s.Labels)
	meta.Annotations = map[string]string{}
	maps.Copy(meta.Annotations, s.Annotations)
	if s.Keep {
		meta.Annotations[AnnotationKeep] = "true"
	} else {
		meta.OwnerReferences = []metav1.OwnerReference{pod.OwnerReference()}
	}
	return meta
}

// JoinPatch returns the strategic merge patch that adds another VM to an existing Service and replaces its ports, if the Service is
// unchanged since it was read. Fields that are not in the patch stay: the cluster IP, the load balancer, and the node ports of ports with
// the same names. If the Service was kept and is not any longer, others are the other VMs behind it, which also become its owners.
func (s Service) JoinPatch(existing *corev1.Service, pod VMPod, others []VMPod, director string) []byte {
	meta := s.meta(pod, director)
	for _, other := range others {
		meta.OwnerReferences = append(meta.OwnerReferences, other.OwnerReference())
	}
	ports := []any{map[string]any{"$patch": "replace"}}
	for _, port := range s.Ports {
		ports = append(ports, port)
	}
	spec := map[string]any{
		"type": s.Type, "ports": ports, "externalIPs": s.ExternalIPs, "loadBalancerSourceRanges": s.SourceRanges,
		"selector":              map[string]string{ServiceLabel(s.Name): serviceLabelValue},
		"externalTrafficPolicy": nil, "sessionAffinity": nil, "publishNotReadyAddresses": s.PublishNotReadyAddresses, // nil: the defaults
	}
	if s.ExternalTrafficPolicy != "" {
		spec["externalTrafficPolicy"] = s.ExternalTrafficPolicy
	}
	if s.SessionAffinity != "" {
		spec["sessionAffinity"] = s.SessionAffinity
	}
	if s.ClusterIP != "" {
		spec["clusterIP"] = s.ClusterIP // the API server rejects a change with an error
	}
	if s.LoadBalancerIP != "" {
		spec["loadBalancerIP"] = s.LoadBalancerIP
	}
	if s.LoadBalancerClass != "" {
		spec["loadBalancerClass"] = s.LoadBalancerClass
	}
	annotations := map[string]any{AnnotationKeep: nil}
	for key, value := range meta.Annotations {
		annotations[key] = value
	}
	changed := map[string]any{
		"uid": existing.UID, "resourceVersion": existing.ResourceVersion, "labels": meta.Labels, "annotations": annotations,
	}
	if s.Keep {
		changed["ownerReferences"] = []any{map[string]any{"$patch": "replace"}}
	} else {
		changed["ownerReferences"] = meta.OwnerReferences // merged by UID with those of other VMs
	}
	return encode(map[string]any{"metadata": changed, "spec": spec})
}

// IsKept reports whether the Service stays when its last VM is deleted.
func IsKept(service *corev1.Service) bool { return service.Annotations[AnnotationKeep] == "true" }

// IsBehindService reports whether the VM is behind the Service of this name.
func IsBehindService(service string, pod VMPod) bool {
	return pod.Labels[ServiceLabel(service)] == serviceLabelValue
}

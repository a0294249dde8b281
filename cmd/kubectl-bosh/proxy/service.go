package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// answersTo reports whether the address, or the name, is the Service's.
func answersTo(service *corev1.Service, host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return named(service, host)
	}
	addresses := slices.Concat(service.Spec.ClusterIPs, service.Spec.ExternalIPs)
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	return slices.ContainsFunc(addresses, func(text string) bool { return isAddress(text, address) })
}

// named reports whether the name is one that the cluster's DNS has for the Service, whatever the cluster's domain, or its
// load balancer's.
func named(service *corev1.Service, host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	short := service.Name + "." + service.Namespace
	if host == short || host == short+".svc" || strings.HasPrefix(host, short+".svc.") {
		return true
	}
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(ingress corev1.LoadBalancerIngress) bool {
		return ingress.Hostname != "" && strings.EqualFold(ingress.Hostname, host)
	})
}

// behind returns the machine behind the Service: always the oldest of those that are ready, so that one client's
// connections go to one machine as long as it lives.
func behind(service *corev1.Service, port int32, pods []*corev1.Pod) (Target, error) {
	if len(service.Spec.Selector) == 0 {
		return Target{}, fmt.Errorf("%w: Service %s has it, which selects no Pods", ErrNobody, service.Name)
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var all, ready []*corev1.Pod
	for _, pod := range pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		all = append(all, pod)
		if up(pod) && (kube.Ready(pod) || service.Spec.PublishNotReadyAddresses) {
			ready = append(ready, pod)
		}
	}
	switch {
	case len(ready) > 0:
		pod := slices.MinFunc(ready, byAge)
		target, err := targetPort(service, port, pod)
		return Target{Pod: pod, Port: target, Service: service.Name}, err
	case len(all) > 0 || service.Labels[manifest.LabelManagedBy] == manifest.ManagedBy:
		return Target{}, fmt.Errorf("a machine that is ready behind Service %s %w", service.Name, ErrAway)
	default:
		return Target{}, fmt.Errorf("%w: Service %s has it, which has no machine behind it", ErrNobody, service.Name)
	}
}

// targetPort is the port of the Pod to which the Service sends what comes to this port.
func targetPort(service *corev1.Service, port int32, pod *corev1.Pod) (int32, error) {
	var has []string
	for _, each := range service.Spec.Ports {
		if each.Protocol != corev1.ProtocolTCP && each.Protocol != "" {
			continue
		}
		if each.Port == port {
			return resolve(service, each, pod)
		}
		has = append(has, strconv.Itoa(int(each.Port)))
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return port, nil // its name means the Pods themselves
	}
	return 0, fmt.Errorf("%w: Service %s has no TCP port %d, but %s", ErrNoPort, service.Name, port, strings.Join(has, ", "))
}

func resolve(service *corev1.Service, port corev1.ServicePort, pod *corev1.Pod) (int32, error) {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return port.Port, nil
	}
	if port.TargetPort.Type == intstr.Int {
		if port.TargetPort.IntVal == 0 {
			return port.Port, nil
		}
		return port.TargetPort.IntVal, nil
	}
	for _, container := range pod.Spec.Containers {
		for _, each := range container.Ports {
			if each.Name == port.TargetPort.StrVal && (each.Protocol == corev1.ProtocolTCP || each.Protocol == "") {
				return each.ContainerPort, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: port %d of Service %s is %q of its Pods, and %s has none of that name",
		ErrNoPort, port.Port, service.Name, port.TargetPort.StrVal, pod.Name)
}

package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// hasHost reports whether the host is an address or a name of the Service.
func hasHost(service *corev1.Service, host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return hasName(service, host)
	}
	addresses := slices.Concat(service.Spec.ClusterIPs, service.Spec.ExternalIPs)
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	return slices.ContainsFunc(addresses, func(ip string) bool { return isAddress(ip, address) })
}

// hasName reports whether the host is a DNS name of the Service, in any cluster domain, or the name of its load balancer.
func hasName(service *corev1.Service, host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	short := service.Name + "." + service.Namespace
	if host == short || host == short+".svc" || strings.HasPrefix(host, short+".svc.") {
		return true
	}
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(ingress corev1.LoadBalancerIngress) bool {
		return ingress.Hostname != "" && strings.EqualFold(ingress.Hostname, host)
	})
}

// vmBehindService returns the oldest ready VM behind the Service, so that a client's connections reach the same VM while it exists.
func vmBehindService(service *corev1.Service, port int32, pods []manifest.VMPod) (Target, error) {
	if len(service.Spec.Selector) == 0 {
		return Target{}, newFindError(ErrUnknownAddress, "Service %s has this address, but does not select Pods", service.Name)
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var selected, ready []manifest.VMPod
	for _, pod := range pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		selected = append(selected, pod)
		if isRunning(pod) && (kube.IsReady(pod.Pod) || service.Spec.PublishNotReadyAddresses) {
			ready = append(ready, pod)
		}
	}
	switch {
	case len(ready) > 0:
		pod := slices.MinFunc(ready, compareAge)
		target, err := targetPort(service, port, pod)
		return Target{Pod: pod, Port: target, Service: service.Name}, err
	case len(selected) > 0 || manifest.ManagerOf(service) == manifest.ManagedBy:
		return Target{}, fmt.Errorf("%w: no VM behind Service %s is ready", ErrNotRunning, service.Name)
	default:
		return Target{}, newFindError(ErrUnknownAddress, "Service %s has this address, but selects no VM", service.Name)
	}
}

// targetPort returns the port of the Pod for this port of the Service.
func targetPort(service *corev1.Service, port int32, pod manifest.VMPod) (int32, error) {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return port, nil // a headless Service resolves to its Pods, without mapping ports
	}
	var tcpPorts []string
	for _, servicePort := range service.Spec.Ports {
		if servicePort.Protocol != corev1.ProtocolTCP && servicePort.Protocol != "" {
			continue
		}
		if servicePort.Port == port {
			return resolveTargetPort(service, servicePort, pod)
		}
		tcpPorts = append(tcpPorts, strconv.Itoa(int(servicePort.Port)))
	}
	return 0, newFindError(ErrNoPort, "Service %s has no TCP port %d; its TCP ports are %s", service.Name, port, strings.Join(tcpPorts, ", "))
}

func resolveTargetPort(service *corev1.Service, port corev1.ServicePort, pod manifest.VMPod) (int32, error) {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntVal, port.Port), nil
	}
	for _, container := range pod.Spec.Containers {
		for _, containerPort := range container.Ports {
			if containerPort.Name == port.TargetPort.StrVal && (containerPort.Protocol == corev1.ProtocolTCP || containerPort.Protocol == "") {
				return containerPort.ContainerPort, nil
			}
		}
	}
	return 0, newFindError(ErrNoPort, "port %d of Service %s targets port %q, but Pod %s does not have that port",
		port.Port, service.Name, port.TargetPort.StrVal, pod.Name)
}

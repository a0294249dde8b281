package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// holder returns the machine with the address: one that has it, before one that asked for it; the youngest, where
// several share that of their node.
func holder(host string, pods []*corev1.Pod) (*corev1.Pod, error) {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return nil, ErrNobody // a name is a Service's
	}
	var away *corev1.Pod
	var have, asked []*corev1.Pod
	for _, pod := range pods {
		has := slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return isAddress(ip.IP, address) })
		switch asks := manifest.RequestsAddress(pod.Labels[manifest.LabelRequestedAddresses], address.Unmap().String()); {
		case !has && !asks:
		case !up(pod):
			away = pod
		case has:
			have = append(have, pod)
		default:
			asked = append(asked, pod)
		}
	}
	for _, some := range [][]*corev1.Pod{have, asked} {
		if len(some) > 0 {
			return slices.MaxFunc(some, byAge), nil
		}
	}
	if away != nil {
		return nil, fmt.Errorf("the machine %s %w: %s", away.Name, ErrAway, state(away))
	}
	return nil, ErrNobody
}

func isAddress(text string, address netip.Addr) bool {
	parsed, err := netip.ParseAddr(text)
	return err == nil && parsed.Unmap() == address.Unmap()
}

// up reports whether connections can be forwarded to the Pod: it runs, and is not to end.
func up(pod *corev1.Pod) bool { return kube.IsActive(pod) && pod.Status.Phase == corev1.PodRunning }

func state(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "its Pod is being deleted"
	}
	return "its Pod is " + string(pod.Status.Phase)
}

// byAge puts older Pods first.
func byAge(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }

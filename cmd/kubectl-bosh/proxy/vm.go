package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// vmWithAddress returns the running VM with the address. A VM that has the address takes precedence over a VM that requests it. If
// several VMs share the address of their node, the youngest takes precedence.
func vmWithAddress(host string, pods []manifest.VMPod) (manifest.VMPod, error) {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return manifest.VMPod{}, ErrUnknownAddress // a DNS name, which only Services have
	}
	var notRunning manifest.VMPod
	var assigned, requested []manifest.VMPod
	for _, pod := range pods {
		hasAddress := slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return isAddress(ip.IP, address) })
		switch requestsAddress := manifest.RequestsAddress(manifest.RequestedAddressesOf(pod), address.Unmap().String()); {
		case !hasAddress && !requestsAddress:
		case !isRunning(pod):
			notRunning = pod
		case hasAddress:
			assigned = append(assigned, pod)
		default:
			requested = append(requested, pod)
		}
	}
	for _, candidates := range [][]manifest.VMPod{assigned, requested} {
		if len(candidates) > 0 {
			return slices.MaxFunc(candidates, compareAge), nil
		}
	}
	if notRunning.Pod != nil {
		return notRunning, fmt.Errorf("%w has address %s: Pod %s %s", ErrNotRunning, host, notRunning.Name, podState(notRunning))
	}
	return notRunning, ErrUnknownAddress
}

func isAddress(ip string, address netip.Addr) bool {
	parsed, err := netip.ParseAddr(ip)
	return err == nil && parsed.Unmap() == address.Unmap()
}

// isRunning reports whether connections can be forwarded to the Pod: it is running, and not being deleted.
func isRunning(pod manifest.VMPod) bool {
	return kube.IsActive(pod.Pod) && pod.Status.Phase == corev1.PodRunning
}

func podState(pod manifest.VMPod) string {
	if pod.DeletionTimestamp != nil {
		return "is being deleted"
	}
	return "is " + string(pod.Status.Phase)
}

// compareAge sorts older Pods first.
func compareAge(a, b manifest.VMPod) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

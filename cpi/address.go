package cpi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
)

// annotate answers the Pod's annotations with those that ask for the networks' addresses.
func (ns Networks) annotate(options NetworkOptions, own map[string]string) (map[string]string, error) {
	asked, err := options.annotations(ns.addresses())
	if err != nil {
		return nil, err
	}
	attached, err := ns.attachments()
	if err != nil {
		return nil, err
	}
	if _, both := own[annotationAttachments]; both && len(attached) > 0 {
		return nil, invalid("cloud_properties.annotations.%s and a network's network_attachment exclude each other: "+
			"give every attachment as a network", annotationAttachments)
	}
	return merged(own, asked, attached), nil
}

// checkAddresses compares the addresses that BOSH chose with those that the Pod got, and adds to the
// error what the cluster reported of the Pod.
func (c *call) checkAddresses(cluster *kube.Client, pod *corev1.Pod, networks Networks) error {
	err := networks.verify(pod)
	if err == nil {
		return nil
	}
	detached, cancel := c.detached()
	defer cancel()
	return fmt.Errorf("%w; reported of Pod %s: %s", err, pod.Name, cluster.Explain(detached, pod))
}

// keepAddresses makes a dynamic network's address the one that the Pod asks for from now on: when its
// node reboots, the kubelet makes its sandbox anew, and a CNI that is asked for nothing gives another.
func (c *call) keepAddresses(cluster *kube.Client, pod *corev1.Pod, networks Networks) error {
	if !c.config.Network.KeepDynamicAddresses || !networks.dynamic() {
		return nil
	}
	wanted, err := c.config.Network.annotations(podAddresses(pod))
	if err != nil {
		return err
	}
	maps.DeleteFunc(wanted, func(name, _ string) bool {
		_, set := pod.Annotations[name] // by the operator, by the CNI itself, or by an earlier try
		return set
	})
	if len(wanted) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": wanted}})
	if err != nil {
		return err
	}
	_, err = cluster.Pods.Patch(c.ctx, pod.Name, types.MergePatchType, patch)
	return err
}

// dynamic reports whether the Pod's own address is one that the cluster chose.
func (ns Networks) dynamic() bool {
	some := false
	for _, network := range ns {
		if network.attached() {
			continue
		}
		if network.manual() {
			return false
		}
		some = some || network.Type == networkDynamic
	}
	return some
}

// podAddresses are the Pod's own addresses, IPv4 first.
func podAddresses(pod *corev1.Pod) []string {
	var found []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, address)
		}
	}
	return inOrder(found)
}

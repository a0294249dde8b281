package cpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
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

// errAddress means that the Pod is up without an address that BOSH chose.
var errAddress = errors.New("the machine does not have the address that BOSH chose")

// explainAddresses adds to the error of a Pod that has not got its addresses what is known of that.
func (c *call) explainAddresses(cluster *kube.Client, pod *corev1.Pod, networks Networks, err error) error {
	switch {
	case errors.Is(err, errAddress):
		detached, cancel := c.detached()
		defer cancel()
		return fmt.Errorf("%w; reported of Pod %s: %s", err, pod.Name, cluster.Explain(detached.ctx, pod))
	case errors.Is(err, kube.ErrTimeout) && pod.Spec.NodeName != "" && len(pod.Status.PodIPs) == 0:
		if asked := networks.asked(); asked != "" {
			return fmt.Errorf("%w; until then the Pod had no address, and it asked for %s", err, asked)
		}
	}
	return err
}

// asked names the networks whose addresses BOSH chose.
func (ns Networks) asked() string {
	var asked []string
	for _, name := range slices.Sorted(maps.Keys(ns)) {
		if network := ns[name]; network.manual() {
			asked = append(asked, network.IP+" (network "+name+")")
		}
	}
	return strings.Join(asked, ", ")
}

// keepAddresses makes a dynamic network's address the one that the Pod asks for from now on: when its
// node reboots, the kubelet makes its sandbox anew, and a CNI that is asked for nothing gives another. A
// machine that is made again for each disk has to have its addresses whatever the network.
func (c *call) keepAddresses(cluster *kube.Client, pod *corev1.Pod, networks Networks) error {
	asked := map[string]string{}
	if c.config.Network.KeepDynamicAddresses && networks.dynamic() {
		var err error
		if asked, err = c.config.Network.annotations(podAddresses(pod)); err != nil {
			return err
		}
	}
	if manifest.Recreated(pod) {
		if err := c.keepInTemplate(cluster, pod, asked); err != nil {
			return err
		}
	}
	wanted := unset(asked, pod.Annotations) // by the operator, by the CNI itself, or by an earlier try
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

// keepInTemplate lets each Pod of the machine ask for the addresses of the first, and writes them down.
func (c *call) keepInTemplate(cluster *kube.Client, pod *corev1.Pod, asked map[string]string) error {
	template, err := c.template(cluster, pod.Name)
	if err != nil {
		return err
	}
	_, err = c.change(cluster, pod.Name, manifest.Change{
		Addresses: podAddresses(pod),
		Metadata:  map[string]any{"annotations": unset(asked, template.Template.Annotations)},
	})
	return err
}

// unset answers those of the annotations that are not there.
func unset(annotations, there map[string]string) map[string]string {
	left := maps.Clone(annotations)
	maps.DeleteFunc(left, func(name, _ string) bool { _, set := there[name]; return set })
	return left
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

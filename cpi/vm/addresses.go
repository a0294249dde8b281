package vm

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

// explainAddresses adds the state of the Pod to the error of a VM that did not get its addresses.
func (s *Session) explainAddresses(pod manifest.VMPod, networks network.Networks, err error) error {
	switch {
	case errors.Is(err, network.ErrAddressMismatch):
		return fmt.Errorf("%w; Pod %s: %s", err, pod.Name, s.DiagnosePod(pod.Pod))
	case errors.Is(err, kube.ErrTimeout) && pod.Spec.NodeName != "" && len(pod.Status.PodIPs) == 0:
		if requested := networks.DescribeRequestedAddresses(); requested != "" {
			return fmt.Errorf("%w; the Pod requested %s, but got no address", err, requested)
		}
	}
	return err
}

// recordBoot records that the VM has booted, and makes the dynamic address of the Pod its requested address. When the node reboots, the
// kubelet recreates the Pod's sandbox, and without a request the CNI plugin would assign another address. For a VM with disk_strategy:
// recreate, recordBoot records the addresses of all networks.
func (s *Session) recordBoot(pod manifest.VMPod, networks network.Networks) error {
	annotations := map[string]string{}
	if s.Network.KeepsDynamicAddress(networks, pod) {
		requested, err := s.Network.Annotations(network.PodAddresses(pod))
		if err != nil {
			return err
		}
		maps.Copy(annotations, requested)
	}
	change := manifest.TemplateChange{Addresses: network.PodAddresses(pod), Metadata: &manifest.Metadata{Annotations: annotations}}
	if err := s.strategy(pod.HasRecreateStrategy()).persist(pod, change); err != nil {
		return err
	}
	if !pod.HasRecreateStrategy() { // otherwise, the ephemeral disk is a PVC, and the next Pod of the VM has it
		annotations[manifest.AnnotationBooted] = strconv.FormatBool(true)
	}
	// The operator, the CNI plugin or an earlier attempt may have set some of them.
	missing := missingAnnotations(annotations, pod.Annotations)
	if len(missing) == 0 {
		return nil
	}
	patch, err := manifest.PodAnnotationsPatch(pod, missing)
	if err != nil {
		return err
	}
	_, err = s.Pods.Patch(s.Ctx, pod.Name, patch)
	return err
}

// missingAnnotations returns the annotations that existing lacks, by name.
func missingAnnotations(annotations, existing map[string]string) map[string]string {
	missing := maps.Clone(annotations)
	maps.DeleteFunc(missing, func(name, _ string) bool { _, set := existing[name]; return set })
	return missing
}

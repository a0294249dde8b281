package vm

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// explainAddresses adds to the error of a Pod that has not got its addresses what is known of that.
func (s *Session) explainAddresses(pod *corev1.Pod, networks network.Networks, err error) error {
	switch {
	case errors.Is(err, network.ErrAddressMismatch):
		return fmt.Errorf("%w; reported of Pod %s: %s", err, pod.Name, s.DiagnosePod(pod))
	case errors.Is(err, kube.ErrTimeout) && pod.Spec.NodeName != "" && len(pod.Status.PodIPs) == 0:
		if asked := networks.DescribeStaticAddresses(); asked != "" {
			return fmt.Errorf("%w; until then the Pod had no address, and it asked for %s", err, asked)
		}
	}
	return err
}

// annotateAddresses makes a dynamic network's address the one that the Pod asks for from now on: when its
// node reboots, the kubelet makes its sandbox anew, and a CNI that is asked for nothing gives another. A
// machine that is made again for each disk has to have its addresses whatever the network.
func (s *Session) annotateAddresses(pod *corev1.Pod, networks network.Networks) error {
	annotations := map[string]string{}
	if s.Network.KeepsDynamicAddress(networks, pod) {
		var err error
		if annotations, err = s.Network.Annotations(network.PodAddresses(pod)); err != nil {
			return err
		}
	}
	if err := s.strategyForPod(pod).persistAddresses(pod, annotations); err != nil {
		return err
	}
	missing := missingAnnotations(annotations, pod.Annotations) // by the operator, by the CNI itself, or by an earlier try
	if len(missing) == 0 {
		return nil
	}
	patch, err := manifest.AnnotatePod(pod, missing)
	if err != nil {
		return err
	}
	_, err = s.Pods.Patch(s.Ctx, pod.Name, patch)
	return err
}

// missingAnnotations returns those of the annotations that are not there.
func missingAnnotations(annotations, existing map[string]string) map[string]string {
	missing := maps.Clone(annotations)
	maps.DeleteFunc(missing, func(name, _ string) bool { _, set := existing[name]; return set })
	return missing
}

package preflight

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// limitsName is the name of the ConfigMap in manifests/admission-limits.yaml.
const limitsName = "bosh-cpi-limits"

// admissionLimits are what the admission policy requires of all VMs in the namespace, so that samples are like VMs that comply. A policy
// that rejects them, too, prevents calls.
type admissionLimits struct {
	nodeSelector map[string]string
	nodes        []string // nil: all
	unprivileged bool
	capabilities []string // that an unprivileged VM may add
	hostUsers    *bool
	runtimeClass string
}

// readAdmissionLimits returns the limits in the ConfigMap, or none if it does not exist or cannot be read.
func (s *clusterState) readAdmissionLimits(ctx context.Context) (admissionLimits, error) {
	found, err := s.client.ConfigMaps().Get(ctx, limitsName)
	if err != nil {
		return admissionLimits{}, err
	}
	limits := admissionLimits{
		nodes: listed(found, "nodes"), unprivileged: found.Data["privileged_vms"] != "true", capabilities: listed(found, "capabilities"),
	}
	for _, label := range listed(found, "node_selector") {
		key, value, _ := strings.Cut(label, "=")
		if limits.nodeSelector == nil {
			limits.nodeSelector = map[string]string{}
		}
		limits.nodeSelector[key] = value
	}
	for _, setting := range listed(found, "isolation") { // the last one counts; one of them is enough
		limits.hostUsers, limits.runtimeClass = nil, ""
		if class, isClass := strings.CutPrefix(setting, "runtime_class: "); isClass {
			limits.runtimeClass = class
		} else if setting == "host_users: false" {
			limits.hostUsers = new(false)
		}
	}
	return limits, nil
}

// listed returns the lines of a list in the limits.
func listed(limits *corev1.ConfigMap, key string) (lines []string) {
	for line := range strings.SplitSeq(limits.Data[key], "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// applyTo sets what the limits require of the VM.
func (l admissionLimits) applyTo(vm *manifest.VM) {
	vm.NodeSelector, vm.HostUsers, vm.RuntimeClass = l.nodeSelector, l.hostUsers, l.runtimeClass
	if l.unprivileged {
		vm.SecurityContext = &corev1.SecurityContext{Privileged: new(false), Capabilities: &corev1.Capabilities{}}
		for _, capability := range l.capabilities {
			vm.SecurityContext.Capabilities.Add = append(vm.SecurityContext.Capabilities.Add, corev1.Capability(capability))
		}
	}
}

// admit reports whether the limits admit VMs on the node.
func (l admissionLimits) admit(node *corev1.Node) bool {
	for key, value := range l.nodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	return len(l.nodes) == 0 || slices.Contains(l.nodes, node.Name)
}

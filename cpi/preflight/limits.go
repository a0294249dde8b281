package preflight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// limitsName is the name of the ConfigMap in manifests/admission-limits.yaml.
const limitsName = "bosh-cpi-limits"

// admissionLimits are what the admission policy requires of all VMs in the namespace. Samples comply with them: if the policy rejects a
// sample, it rejects calls.
type admissionLimits struct {
	nodeSelector map[string]string
	nodes        []string // nil: all
	unprivileged bool
	capabilities []string // that an unprivileged VM may add
	hostUsers    *bool
	runtimeClass string
	// storageClasses are those that disks may have.
	storageClasses []string
}

// readAdmissionLimits returns the limits in the ConfigMap, or none if it does not exist.
func (s *clusterState) readAdmissionLimits(ctx context.Context) (admissionLimits, error) {
	found, err := s.client.ConfigMaps().Get(ctx, limitsName)
	if errors.Is(err, kube.ErrNotFound) {
		return admissionLimits{}, nil
	}
	if err != nil {
		return admissionLimits{}, err
	}
	limits := admissionLimits{
		nodes: listed(found, "nodes"), unprivileged: found.Data["privileged_vms"] != "true", capabilities: listed(found, "capabilities"),
		storageClasses: listed(found, "storage_classes"),
	}
	for _, label := range listed(found, "node_selector") {
		key, value, _ := strings.Cut(label, "=")
		if limits.nodeSelector == nil {
			limits.nodeSelector = map[string]string{}
		}
		limits.nodeSelector[key] = value
	}
	for _, setting := range listed(found, "isolation") { // a VM needs one of them; samples have the last one
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

// describe returns what the limits require of each VM, for the result of a check, or "".
func (l admissionLimits) describe() string {
	var required []string
	if l.unprivileged {
		required = append(required, "security.privileged: false")
	}
	if l.hostUsers != nil {
		required = append(required, "security.host_users: false")
	}
	if l.runtimeClass != "" {
		required = append(required, "runtime_class: "+l.runtimeClass)
	}
	for _, key := range slices.Sorted(maps.Keys(l.nodeSelector)) {
		required = append(required, "node_selector "+key+": "+l.nodeSelector[key])
	}
	if len(required) == 0 {
		return ""
	}
	return "; the limits require of each VM, also the director's, " + strings.Join(required, ", ")
}

// dropUnknown removes facts about the node that a probe without privileges cannot find out.
func (l admissionLimits) dropUnknown(facts map[string]string) {
	if !l.unprivileged {
		return
	}
	maps.DeleteFunc(facts, func(fact, value string) bool {
		return value == "no" && !slices.Contains([]string{"dns", "api", "hairpin", "open-files"}, fact)
	})
}

// admit reports whether the limits admit VMs on the node.
func (l admissionLimits) admit(node *corev1.Node) bool {
	return hasLabels(node, l.nodeSelector) && (len(l.nodes) == 0 || slices.Contains(l.nodes, node.Name))
}

func hasLabels(node *corev1.Node, required map[string]string) bool {
	return labels.SelectorFromSet(required).Matches(labels.Set(node.Labels))
}

package call

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/kube/manifest"
)

// PodOptions say what the CPI's Pods carry for others in the cluster.
type PodOptions struct {
	// Labels and Annotations are on every Pod, those of machines too.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// HelperLimits bound the Pods that do something for a machine or a disk: a quota of the namespace may ask that
	// every Pod has limits.
	HelperLimits corev1.ResourceList `json:"helper_limits"`
	// LXCFS is the path at which nodes have lxcfs mounted: machines tell their own sizes in /proc by it, and the node's
	// without it.
	LXCFS string `json:"lxcfs"`
}

// DefaultPodOptions ask injectors of proxies to stay away. A machine is a whole operating system, whose connections a
// proxy would redirect before its agent has reached the message bus; and what helps a machine uses the node's network,
// and is to end when it is done.
//
// Helpers stay far below their limits, but for the check of a large filesystem, which keeps maps of all blocks and inodes: e2fsck takes
// 165 MiB for an ext4 of 15 TiB without files.
func DefaultPodOptions() PodOptions {
	return PodOptions{
		// https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/: the label; the annotation before 1.11.
		Labels: map[string]string{"sidecar.istio.io/inject": "false"},
		Annotations: map[string]string{
			"sidecar.istio.io/inject": "false",
			// https://linkerd.io/2/reference/proxy-configuration/
			"linkerd.io/inject": "disabled",
		},
		HelperLimits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
}

// Validate names the first that Kubernetes does not take, or that is the CPI's own.
func (o PodOptions) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(o.HelperLimits)) {
		if amount := o.HelperLimits[name]; amount.Sign() <= 0 {
			return Invalid("pods.helper_limits.%s must be greater than 0", name)
		}
	}
	if o.LXCFS != "" && (!path.IsAbs(o.LXCFS) || path.Clean(o.LXCFS) != o.LXCFS || o.LXCFS == "/") {
		return Invalid("pods.lxcfs %q has to be the path at which nodes have lxcfs mounted, as /var/lib/lxcfs", o.LXCFS)
	}
	return CheckLabels("pods", o.Labels, o.Annotations)
}

// MergeMetadata returns the labels and annotations of a Pod with those of the options added. A key that the Pod has, as a label or an
// annotation, is left to it in both places: injectors read one or the other.
func (o PodOptions) MergeMetadata(labels, annotations map[string]string) (map[string]string, map[string]string) {
	missing := func(marks map[string]string) map[string]string {
		remaining := map[string]string{}
		for key, value := range marks {
			_, label := labels[key]
			if _, annotation := annotations[key]; !label && !annotation {
				remaining[key] = value
			}
		}
		return remaining
	}
	markedLabels, markedAnnotations := missing(o.Labels), missing(o.Annotations)
	maps.Copy(markedLabels, labels)
	maps.Copy(markedAnnotations, annotations)
	return markedLabels, markedAnnotations
}

// applyLimits bounds the helper's container, which asks for no more than it may have.
func (o PodOptions) applyLimits(helper *corev1.Container) {
	if len(o.HelperLimits) == 0 {
		return
	}
	helper.Resources.Limits = maps.Clone(o.HelperLimits)
	for name, limit := range o.HelperLimits {
		if request, ok := helper.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			helper.Resources.Requests[name] = limit
		}
	}
}

// ApplyToVM gives a machine what the options say of such. One that is made again for each disk is in a sandbox, which has sizes of
// its own; and what lxcfs has cannot be mounted for a user namespace.
func (o PodOptions) ApplyToVM(vm *manifest.VM) {
	vm.Labels, vm.Annotations = o.MergeMetadata(vm.Labels, vm.Annotations)
	if !vm.Recreate && (vm.HostUsers == nil || *vm.HostUsers) {
		vm.LXCFS = o.LXCFS
	}
}

// ApplyToHelperPod gives a Pod that does something for a machine or a disk what the options say of such.
func (o PodOptions) ApplyToHelperPod(helper *corev1.Pod) *corev1.Pod {
	helper.Labels, helper.Annotations = o.MergeMetadata(helper.Labels, helper.Annotations)
	o.applyLimits(manifest.OwnContainer(helper))
	return helper
}

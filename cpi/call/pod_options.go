package call

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// PodOptions adapts the Pods of the CPI to other components of the cluster.
type PodOptions struct {
	// Labels and Annotations are set on every Pod.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// HelperLimits are the resource limits of helper Pods and attachment Pods. A quota of the namespace may require limits for
	// every Pod.
	HelperLimits corev1.ResourceList `json:"helper_limits"`
	// HelperRequests replace the resource requests of helper Pods and attachment Pods. A LimitRange may require a minimum, or a ratio to
	// the limit.
	HelperRequests corev1.ResourceList `json:"helper_requests"`
	// LXCFS is the path at which lxcfs is mounted on the nodes. If it is set, /proc in a VM shows the VM's CPUs and memory instead
	// of the node's.
	LXCFS string `json:"lxcfs_path"`
}

// DefaultPodOptions returns options that exclude the CPI's Pods from the injection of proxies. A VM is a complete operating system:
// a proxy would redirect its connections before the agent reaches the message bus. A helper Pod uses the node's network, and must
// end when its program ends.
//
// Helper Pods stay far below the default limits, with one exception: the check of a large filesystem keeps maps of all blocks and
// inodes in memory. e2fsck needs 165 MiB for an ext4 filesystem of 15 TiB without files.
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

// Validate returns an error for the first option that is not valid in Kubernetes, or that is reserved for the CPI.
func (o PodOptions) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(o.HelperLimits)) {
		if amount := o.HelperLimits[name]; amount.Sign() <= 0 {
			return InvalidPropertyf("kubernetes.pods.helper_limits.%s must be greater than 0", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.HelperRequests)) {
		request, limit := o.HelperRequests[name], o.HelperLimits[name]
		if request.Sign() <= 0 {
			return InvalidPropertyf("kubernetes.pods.helper_requests.%s must be greater than 0", name)
		}
		if !limit.IsZero() && request.Cmp(limit) > 0 {
			return InvalidPropertyf("kubernetes.pods.helper_requests.%s is greater than kubernetes.pods.helper_limits.%s; raise the limit, too",
				name, name)
		}
	}
	if o.LXCFS != "" && (!path.IsAbs(o.LXCFS) || path.Clean(o.LXCFS) != o.LXCFS || o.LXCFS == "/") {
		return InvalidPropertyf("kubernetes.pods.lxcfs_path %q is not a valid path; set it to the directory where nodes mount lxcfs, "+
			"like /var/lib/lxcfs", o.LXCFS)
	}
	return CheckLabels("kubernetes.pods", o.Labels, o.Annotations)
}

// MergeMetadata returns the labels and annotations of a Pod, plus those of the options. If the Pod already has a key, as a label or
// as an annotation, MergeMetadata adds neither a label nor an annotation with this key: some injectors read the label, others the
// annotation.
func (o PodOptions) MergeMetadata(labels, annotations map[string]string) (map[string]string, map[string]string) {
	missing := func(options map[string]string) map[string]string {
		remaining := map[string]string{}
		for key, value := range options {
			_, label := labels[key]
			if _, annotation := annotations[key]; !label && !annotation {
				remaining[key] = value
			}
		}
		return remaining
	}
	mergedLabels, mergedAnnotations := missing(o.Labels), missing(o.Annotations)
	maps.Copy(mergedLabels, labels)
	maps.Copy(mergedAnnotations, annotations)
	return mergedLabels, mergedAnnotations
}

// HelperResources returns the resource requirements of helper Pods.
func (o PodOptions) HelperResources() corev1.ResourceRequirements {
	container := corev1.Container{Resources: corev1.ResourceRequirements{Requests: manifest.HelperRequests()}}
	o.applyResources(&container)
	return container.Resources
}

// applyResources sets HelperRequests and HelperLimits on a container, and reduces requests that exceed the limits.
func (o PodOptions) applyResources(container *corev1.Container) {
	maps.Copy(container.Resources.Requests, o.HelperRequests)
	if len(o.HelperLimits) == 0 {
		return
	}
	container.Resources.Limits = maps.Clone(o.HelperLimits)
	for name, limit := range o.HelperLimits {
		if request, ok := container.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			container.Resources.Requests[name] = limit
		}
	}
}

// ApplyToVM applies the options to a VM. It does not set LXCFS on a VM with disk_strategy: recreate, which has the CPUs and memory of
// its sandbox, nor on a VM in a user namespace, where the files of lxcfs cannot be mounted.
func (o PodOptions) ApplyToVM(vm *manifest.VM) {
	vm.Labels, vm.Annotations = o.MergeMetadata(vm.Labels, vm.Annotations)
	if !vm.Recreate && (vm.HostUsers == nil || *vm.HostUsers) {
		vm.LXCFS = o.LXCFS
	}
}

// ApplyToHelperPod applies the options to a helper Pod or an attachment Pod, and returns the Pod.
func (o PodOptions) ApplyToHelperPod(pod *corev1.Pod) *corev1.Pod {
	pod.Labels, pod.Annotations = o.MergeMetadata(pod.Labels, pod.Annotations)
	o.applyResources(manifest.OwnContainer(pod))
	return pod
}

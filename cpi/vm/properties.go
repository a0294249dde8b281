package vm

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube/document"
)

// Properties are the cloud_properties of a VM. The director merges them from its VM type, AZ and VM extensions. Native Kubernetes
// structures have the keys that they have in Kubernetes.
type Properties struct {
	// CPU is the number of CPUs (2) or a quantity ("500m").
	CPU Quantity `json:"cpu"`
	// Memory is in MiB (1024) or a quantity ("1Gi").
	Memory Quantity `json:"memory"`
	// EphemeralDisk is the size of the ephemeral disk, in MiB or as a quantity, or a hash with size and storage_class for a PVC.
	EphemeralDisk EphemeralDisk `json:"ephemeral_disk"`
	// SharedMemory is the size of /dev/shm, in MiB or as a quantity. The container runtime determines the default, usually 64 MiB.
	SharedMemory Quantity `json:"shared_memory"`
	// Resources are native requests and limits, in addition to cpu and memory, or instead of them.
	Resources corev1.ResourceRequirements `json:"resources"`

	// DiskStrategy is hot-plug (the default), or recreate for runtime classes that isolate VMs from the devices of the node.
	DiskStrategy string `json:"disk_strategy"`

	NodeSelector              map[string]string                 `json:"node_selector"`
	Affinity                  *corev1.Affinity                  `json:"affinity"`
	Tolerations               []corev1.Toleration               `json:"tolerations"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topology_spread_constraints"`
	// Zone and Region are required values of the node labels topology.kubernetes.io/zone and topology.kubernetes.io/region.
	Zone   string `json:"zone"`
	Region string `json:"region"`

	PriorityClass  string `json:"priority_class"`
	RuntimeClass   string `json:"runtime_class"`
	ServiceAccount string `json:"service_account"`
	// ImagePullSecrets are the names of Secrets in the VM's namespace.
	ImagePullSecrets []string          `json:"image_pull_secrets"`
	Labels           map[string]string `json:"labels"`
	Annotations      map[string]string `json:"annotations"`

	DNSPolicy corev1.DNSPolicy     `json:"dns_policy"`
	DNSConfig *corev1.PodDNSConfig `json:"dns_config"`

	// Services are the Services that send traffic to the VM.
	Services []Service `json:"services"`
	// ReadinessProbe is a native probe: Services send traffic to the VM only while it succeeds. Without a probe, they do so from the
	// start of the VM's jobs until the director stops them.
	ReadinessProbe *corev1.Probe `json:"readiness_probe"`
	// TerminationGracePeriod is how long the VM may take to shut down if Kubernetes deletes it, in seconds. Before the last 30 seconds,
	// the drain scripts of the jobs run. By default, the VM has 30 seconds and no drain script runs.
	TerminationGracePeriod int64 `json:"termination_grace_period"`
	// DisruptionBudget configures the PodDisruptionBudget of the VM's instance group.
	DisruptionBudget *manifest.DisruptionBudget `json:"disruption_budget"`

	// Security sets the privileges of the VM. By default a VM is privileged.
	Security Security `json:"security"`
	// Init is the absolute path of the stemcell's init program, if it is neither /usr/sbin/runsvdir-start nor /sbin/init.
	Init string `json:"init"`
}

// Synonyms returns the keys for those of CPIs of other IaaSes, and of older ones for Kubernetes and Docker.
func (Properties) Synonyms() map[string]string {
	return map[string]string{
		"ports": "services", "node_ports": "services", "ingresses": "services", "ram": "memory", "disk": "ephemeral_disk",
		"availability_zone": "zone",
	}
}

// EphemeralDisk configures the storage for /var/vcap.
type EphemeralDisk struct {
	Size         Quantity `json:"size"`
	StorageClass string   `json:"storage_class"`
}

type ephemeralDiskHash EphemeralDisk

// Form implements [document.Union].
func (*EphemeralDisk) Form() string {
	return (*Quantity)(nil).Form() + ", or a hash with size and storage_class"
}

// Hash implements [document.Union].
func (*EphemeralDisk) Hash() any { return new(ephemeralDiskHash) }

// UnmarshalJSON decodes a size or a hash.
func (e *EphemeralDisk) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("{")) {
		return json.Unmarshal(raw, (*ephemeralDiskHash)(e))
	}
	return json.Unmarshal(raw, &e.Size)
}

// Quantity is a number or a Kubernetes quantity. The property determines the unit of a number.
type Quantity struct {
	number   *int64
	str      string
	fraction bool // str was a number
}

// Form implements [document.Union].
func (*Quantity) Form() string { return `a number, or a quantity like "500m" or "2Gi"` }

// Hash implements [document.Union].
func (*Quantity) Hash() any { return nil }

// UnmarshalJSON decodes a number like 2, or a string like "2Gi".
func (q *Quantity) UnmarshalJSON(raw []byte) error {
	var number int64
	if json.Unmarshal(raw, &number) == nil {
		q.number = &number
		return nil
	}
	if json.Unmarshal(raw, &q.str) == nil {
		if q.str == "" {
			return document.ErrEmpty
		}
		return nil
	}
	var fraction json.Number
	if json.Unmarshal(raw, &fraction) != nil {
		return document.FormError("must be " + q.Form())
	}
	q.str, q.fraction = fraction.String(), true
	return nil
}

func (q Quantity) isSet() bool { return q.number != nil || q.str != "" }

// parse returns the quantity of the property with this key. It multiplies a number by unit.
func (q Quantity) parse(key string, unit int64) (resource.Quantity, error) {
	parsed := resource.Quantity{}
	switch {
	case q.fraction && unit == mebibyte:
		return parsed, call.InvalidPropertyf("cloud_properties.%s %s must be a whole number of MiB, or a quantity with a unit like \"2Gi\"",
			key, q.str)
	case q.number != nil && *q.number > maxQuantity/unit:
		return parsed, call.InvalidPropertyf("cloud_properties.%s %d is not valid; use at most %d", key, *q.number, maxQuantity/unit)
	}
	if q.number != nil {
		parsed = *resource.NewQuantity(*q.number*unit, resource.BinarySI)
		if unit == 1 {
			parsed.Format = resource.DecimalSI
		}
	} else {
		var err error
		if parsed, err = resource.ParseQuantity(q.str); err != nil {
			return parsed, call.InvalidPropertyf("cloud_properties.%s %s is not a valid quantity; use a whole number, or a quantity "+
				"like \"500m\" or \"2Gi\"", key, q.str)
		}
	}
	if parsed.Value() > maxQuantity {
		return parsed, call.InvalidPropertyf("cloud_properties.%s %s is not valid; use at most 1Ei", key, parsed.String())
	}
	if parsed.Sign() <= 0 {
		return parsed, call.InvalidPropertyf("cloud_properties.%s must be greater than 0", key)
	}
	if unit == mebibyte && parsed.Value() < mebibyte {
		return parsed, call.InvalidPropertyf("cloud_properties.%s %s is less than 1 MiB; use a number of MiB, or a quantity with a unit "+
			"like \"2Gi\"", key, parsed.String())
	}
	return parsed, nil
}

const (
	mebibyte    = 1 << 20
	maxQuantity = 1 << 60 // 1 EiB, more than any node has; sums of quantities fit into 64 bits
)

// parseProperties decodes and validates cloud_properties.
func parseProperties(raw json.RawMessage) (Properties, error) {
	var properties Properties
	if err := document.Decode("cloud_properties", raw, &properties); err != nil {
		return properties, call.InvalidPropertyf("%w", err)
	}
	if err := properties.validateDiskStrategy(); err != nil {
		return properties, err
	}
	if properties.EphemeralDisk.StorageClass != "" && !properties.EphemeralDisk.Size.isSet() {
		return properties, call.InvalidPropertyf("cloud_properties.ephemeral_disk.size is missing; a PVC of storage class %s requires it",
			properties.EphemeralDisk.StorageClass)
	}
	if properties.Init != "" && !strings.HasPrefix(properties.Init, "/") {
		return properties, call.InvalidPropertyf("cloud_properties.init %q is not an absolute path", properties.Init)
	}
	if seconds := properties.TerminationGracePeriod; seconds != 0 && seconds <= manifest.ShutdownSeconds {
		return properties, call.InvalidPropertyf("cloud_properties.termination_grace_period %d is not valid; "+
			"use more than %d seconds, because the shutdown takes up to %d seconds after the drain scripts",
			seconds, manifest.ShutdownSeconds, manifest.ShutdownSeconds)
	}
	if err := properties.Security.check(); err != nil {
		return properties, err
	}
	return properties, call.CheckLabels("cloud_properties", properties.Labels, properties.Annotations)
}

// validateDiskStrategy rejects unknown values of disk_strategy, and a VM with disk_strategy: recreate that would lose its ephemeral
// disk with its Pod.
func (p Properties) validateDiskStrategy() error {
	switch p.DiskStrategy {
	case "", diskStrategyHotPlug:
		return nil
	case diskStrategyRecreate:
		if !p.EphemeralDisk.Size.isSet() {
			return call.InvalidPropertyf("cloud_properties.ephemeral_disk.size is missing; " +
				"disk_strategy: recreate requires a PVC for the ephemeral disk, because it must outlive the Pod")
		}
		return nil
	}
	return call.InvalidPropertyf("cloud_properties.disk_strategy %q is not valid; use %s or %s",
		p.DiskStrategy, diskStrategyHotPlug, diskStrategyRecreate)
}

// usesPVC reports whether the ephemeral disk is a PVC, and not storage of the node.
func (p Properties) usesPVC() bool {
	return p.EphemeralDisk.StorageClass != "" || p.DiskStrategy == diskStrategyRecreate
}

// apply sets the properties in vm.
func (p Properties) apply(vm *manifest.VM) error {
	requirements, err := p.requirements()
	if err != nil {
		return err
	}
	vm.Resources = requirements
	if p.SharedMemory.isSet() {
		size, err := p.SharedMemory.parse("shared_memory", mebibyte)
		if err != nil {
			return err
		}
		vm.SharedMemory = &size
	}
	vm.Recreate = p.DiskStrategy == diskStrategyRecreate
	if p.usesPVC() {
		size, err := p.EphemeralDisk.Size.parse("ephemeral_disk.size", mebibyte)
		if err != nil {
			return err
		}
		vm.EphemeralClaim = &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		}
		if p.EphemeralDisk.StorageClass != "" {
			vm.EphemeralClaim.StorageClassName = &p.EphemeralDisk.StorageClass
		}
	}
	vm.NodeSelector = p.buildNodeSelector()
	vm.Affinity, vm.Tolerations, vm.TopologySpreadConstraints = p.Affinity, p.Tolerations, p.TopologySpreadConstraints
	vm.PriorityClass, vm.RuntimeClass, vm.ServiceAccount = p.PriorityClass, p.RuntimeClass, p.ServiceAccount
	for _, name := range p.ImagePullSecrets {
		vm.PullSecrets = append(vm.PullSecrets, corev1.LocalObjectReference{Name: name})
	}
	vm.Labels, vm.Annotations = p.Labels, p.Annotations
	vm.DNSPolicy, vm.DNSConfig = p.DNSPolicy, p.DNSConfig
	vm.HostUsers, vm.SecurityContext = p.Security.HostUsers, p.Security.securityContext()
	vm.Init, vm.ReadinessProbe = p.Init, p.ReadinessProbe
	if p.TerminationGracePeriod != 0 {
		vm.DrainSeconds = p.TerminationGracePeriod - manifest.ShutdownSeconds
	}
	return nil
}

// requirements returns the resource requests and limits of the VM's container. As on other IaaS, the VM gets all of its cpu and memory, and
// no more: each is both request and limit. Native resources override them.
//
// The size of the ephemeral disk is only a request: Kubernetes enforces a limit of ephemeral storage by evicting the Pod, and the VM would
// be lost.
func (p Properties) requirements() (corev1.ResourceRequirements, error) {
	requirements := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, entry := range []struct {
		name  corev1.ResourceName
		key   string
		value Quantity
		unit  int64
	}{
		{corev1.ResourceCPU, "cpu", p.CPU, 1},
		{corev1.ResourceMemory, "memory", p.Memory, mebibyte},
		{corev1.ResourceEphemeralStorage, "ephemeral_disk", p.EphemeralDisk.Size, mebibyte},
	} {
		if !entry.value.isSet() {
			continue
		}
		amount, err := entry.value.parse(entry.key, entry.unit)
		if err != nil {
			return requirements, err
		}
		switch {
		case entry.name != corev1.ResourceEphemeralStorage:
			requirements.Requests[entry.name], requirements.Limits[entry.name] = amount, amount
		case !p.usesPVC():
			requirements.Requests[entry.name] = amount
		}
	}
	maps.Copy(requirements.Requests, p.Resources.Requests)
	maps.Copy(requirements.Limits, p.Resources.Limits)
	requirements.Claims = p.Resources.Claims
	return requirements, nil
}

func (p Properties) buildNodeSelector() map[string]string {
	selector := map[string]string{}
	maps.Copy(selector, p.NodeSelector)
	if p.Zone != "" {
		selector[corev1.LabelTopologyZone] = p.Zone
	}
	if p.Region != "" {
		selector[corev1.LabelTopologyRegion] = p.Region
	}
	return selector
}

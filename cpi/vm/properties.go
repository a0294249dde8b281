package vm

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Properties are a VM's cloud_properties: those of its VM type, AZ and VM extensions, which the
// director merges into one hash. Native Kubernetes structures keep Kubernetes' own keys.
type Properties struct {
	// CPU is the number of CPUs (2) or a quantity ("500m").
	CPU Quantity `json:"cpu"`
	// Memory is in MiB (1024) or a quantity ("1Gi").
	Memory Quantity `json:"memory"`
	// EphemeralDisk is the size of the machine's own storage, in MiB or as a quantity; or a hash with
	// size and storage_class for a claim of its own.
	EphemeralDisk EphemeralDisk `json:"ephemeral_disk"`
	// SharedMemory is the size of /dev/shm, in MiB or as a quantity; the runtime's own, mostly 64 MiB, when it is left out.
	SharedMemory Quantity `json:"shared_memory"`
	// Resources are native requests and limits, beside or instead of cpu and memory.
	Resources corev1.ResourceRequirements `json:"resources"`

	// DiskStrategy is hot-plug, or recreate for runtime classes that keep the node's devices out.
	DiskStrategy string `json:"disk_strategy"`

	NodeSelector   map[string]string                 `json:"node_selector"`
	Affinity       *corev1.Affinity                  `json:"affinity"`
	Tolerations    []corev1.Toleration               `json:"tolerations"`
	TopologySpread []corev1.TopologySpreadConstraint `json:"topology_spread"`
	// Zone and Region are the values of topology.kubernetes.io/zone and /region on the node.
	Zone   string `json:"zone"`
	Region string `json:"region"`

	PriorityClass  string `json:"priority_class"`
	RuntimeClass   string `json:"runtime_class"`
	ServiceAccount string `json:"service_account"`
	// ImagePullSecrets are names of Secrets in the namespace.
	ImagePullSecrets []string          `json:"image_pull_secrets"`
	Labels           map[string]string `json:"labels"`
	Annotations      map[string]string `json:"annotations"`

	DNSPolicy corev1.DNSPolicy     `json:"dns_policy"`
	DNSConfig *corev1.PodDNSConfig `json:"dns_config"`

	// Services are the addresses that the machine is behind.
	Services []Service `json:"services"`
	// ReadinessProbe tells, natively, whether the machine serves: only then its Services send it traffic. Without it a machine
	// does from its boot on.
	ReadinessProbe *corev1.Probe `json:"readiness_probe"`
	// DisruptionBudget is that of the VM's instance group.
	DisruptionBudget *DisruptionBudget `json:"disruption_budget"`

	// Security replaces the machine's privileges; a machine is privileged by default.
	Security Security `json:"security"`
	// Init is the stemcell's init program, when it is neither /usr/sbin/runsvdir-start nor /sbin/init.
	Init string `json:"init"`
}

// EphemeralDisk is where a machine keeps /var/vcap.
type EphemeralDisk struct {
	Size         Quantity `json:"size"`
	StorageClass string   `json:"storage_class"`
}

// UnmarshalJSON takes a size alone or the whole hash.
func (e *EphemeralDisk) UnmarshalJSON(raw []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return json.Unmarshal(raw, &e.Size)
	}
	type fields EphemeralDisk
	return call.DecodeStrict("ephemeral_disk", raw, (*fields)(e))
}

// Quantity is a number or a Kubernetes quantity. What a bare number counts is up to the property.
type Quantity struct {
	number *int64
	text   string
}

// UnmarshalJSON takes 2 and "2Gi". What is neither is kept as it came, for an error that can name the
// property.
func (q *Quantity) UnmarshalJSON(raw []byte) error {
	var number int64
	if json.Unmarshal(raw, &number) == nil {
		q.number = &number
	} else if json.Unmarshal(raw, &q.text) != nil {
		q.text = string(raw)
	}
	return nil
}

func (q Quantity) isSet() bool { return q.number != nil || q.text != "" }

// parse returns the quantity, reading a bare number in this unit.
func (q Quantity) parse(key string, unit int64) (resource.Quantity, error) {
	parsed := resource.Quantity{}
	if q.number != nil {
		parsed = *resource.NewQuantity(*q.number*unit, resource.BinarySI)
		if unit == 1 {
			parsed.Format = resource.DecimalSI
		}
	} else {
		var err error
		if parsed, err = resource.ParseQuantity(q.text); err != nil {
			return parsed, call.Invalid("cloud_properties.%s %s is neither a whole number nor a quantity like \"500m\" or \"2Gi\"", key, q.text)
		}
	}
	if parsed.Sign() <= 0 {
		return parsed, call.Invalid("cloud_properties.%s must be greater than 0", key)
	}
	if unit == mebibyte && parsed.Value() < mebibyte {
		return parsed, call.Invalid("cloud_properties.%s %s is less than 1 MiB: give a number of MiB, or a quantity with its unit like \"2Gi\"",
			key, parsed.String())
	}
	return parsed, nil
}

const mebibyte = 1 << 20

// parseProperties refuses unknown keys and impossible values.
func parseProperties(raw json.RawMessage) (Properties, error) {
	var properties Properties
	if err := call.DecodeStrict("cloud_properties", raw, &properties); err != nil {
		return properties, call.Invalid("%w", err)
	}
	if err := properties.validateDiskStrategy(); err != nil {
		return properties, err
	}
	if properties.EphemeralDisk.StorageClass != "" && !properties.EphemeralDisk.Size.isSet() {
		return properties, call.Invalid("cloud_properties.ephemeral_disk.size is missing: a claim of storage class %s needs one",
			properties.EphemeralDisk.StorageClass)
	}
	if properties.Init != "" && !strings.HasPrefix(properties.Init, "/") {
		return properties, call.Invalid("cloud_properties.init %q is not an absolute path", properties.Init)
	}
	if err := properties.Security.check(); err != nil {
		return properties, err
	}
	return properties, call.CheckLabels("cloud_properties", properties.Labels, properties.Annotations)
}

// validateDiskStrategy refuses a machine that would lose its state with its Pod.
func (p Properties) validateDiskStrategy() error {
	switch p.DiskStrategy {
	case "", diskStrategyHotPlug:
		return nil
	case diskStrategyRecreate:
		if !p.EphemeralDisk.Size.isSet() {
			return call.Invalid("cloud_properties.ephemeral_disk.size is missing: " +
				"with disk_strategy: recreate the machine's storage has to be a claim, which outlives its Pod")
		}
		return nil
	}
	return call.Invalid("cloud_properties.disk_strategy %q is neither %s nor %s", p.DiskStrategy, diskStrategyHotPlug, diskStrategyRecreate)
}

// usesPVC reports whether the machine's own storage is a claim, and not the node's.
func (p Properties) usesPVC() bool {
	return p.EphemeralDisk.StorageClass != "" || p.DiskStrategy == diskStrategyRecreate
}

// apply puts the properties on the machine.
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
	vm.Affinity, vm.Tolerations, vm.TopologySpread = p.Affinity, p.Tolerations, p.TopologySpread
	vm.PriorityClass, vm.ServiceAccount = p.PriorityClass, p.ServiceAccount
	if p.RuntimeClass != "" {
		vm.RuntimeClass = &p.RuntimeClass
	}
	for _, name := range p.ImagePullSecrets {
		vm.PullSecrets = append(vm.PullSecrets, corev1.LocalObjectReference{Name: name})
	}
	vm.Labels, vm.Annotations = p.Labels, p.Annotations
	vm.DNSPolicy, vm.DNSConfig = p.DNSPolicy, p.DNSConfig
	vm.HostUsers, vm.SecurityContext = p.Security.HostUsers, p.Security.securityContext()
	vm.Init, vm.ReadinessProbe = p.Init, p.ReadinessProbe
	return nil
}

// requirements gives the machine what it was promised: as on other IaaS, cpu and memory are both what
// it is sure to have and what it cannot exceed. Native resources win over them.
//
// An ephemeral disk's size is requested but not limited: Kubernetes enforces that limit by evicting
// the Pod, which would cost the machine.
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

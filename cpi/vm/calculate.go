package vm

import "bosh-kubernetes-cpi/cpi/call"

// Resources are the director's `vm_resources`: MB, read as MiB like every IaaS does.
type Resources struct {
	CPU           int `json:"cpu"`
	RAM           int `json:"ram"`
	EphemeralDisk int `json:"ephemeral_disk_size"`
}

// Calculated is what create_vm understands, in the same words.
type Calculated struct {
	CPU           int `json:"cpu"`
	Memory        int `json:"memory"`         // MiB
	EphemeralDisk int `json:"ephemeral_disk"` // MiB
}

// Calculate returns the cloud_properties of a VM with these resources. It needs no cluster.
func Calculate(resources Resources) (Calculated, error) {
	if resources.CPU <= 0 || resources.RAM <= 0 || resources.EphemeralDisk <= 0 {
		return Calculated{}, call.Invalid("vm_resources needs cpu, ram and ephemeral_disk_size, each greater than 0")
	}
	return Calculated{CPU: resources.CPU, Memory: resources.RAM, EphemeralDisk: resources.EphemeralDisk}, nil
}

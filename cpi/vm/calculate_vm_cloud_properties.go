package vm

import "bosh-kubernetes-cpi/cpi/call"

// Resources are the director's `vm_resources`. Sizes are in MB. Like other CPIs, this one treats them as MiB.
type Resources struct {
	CPU           int `json:"cpu"`
	RAM           int `json:"ram"`
	EphemeralDisk int `json:"ephemeral_disk_size"`
}

// Calculated is the result of calculate_vm_cloud_properties: cloud_properties for create_vm.
type Calculated struct {
	CPU           int `json:"cpu"`
	Memory        int `json:"memory"`         // MiB
	EphemeralDisk int `json:"ephemeral_disk"` // MiB
}

// Calculate returns the cloud_properties of a VM with these resources. It sends no requests to a cluster.
func Calculate(resources Resources) (Calculated, error) {
	if resources.CPU <= 0 || resources.RAM <= 0 || resources.EphemeralDisk <= 0 {
		return Calculated{}, call.CodeInvalidRequest.Errorf("vm_resources requires cpu, ram and ephemeral_disk_size, each greater than 0")
	}
	return Calculated{CPU: resources.CPU, Memory: resources.RAM, EphemeralDisk: resources.EphemeralDisk}, nil
}

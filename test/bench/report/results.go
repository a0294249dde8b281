package report

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"
)

// Results are the results of the benchmark. Parts that were not run are empty.
type Results struct {
	// Quick is set for the small benchmark.
	Quick bool `json:"quick"`
	Host  Host `json:"host"`
	// Runs are the conditions of each part, by name.
	Runs map[string]Run `json:"runs"`
	// BinarySizeMiB is the size of the CPI's executable, in MiB.
	BinarySizeMiB float64       `json:"binary_mib"`
	Calls         []ProgramCost `json:"calls"`
	Scale         []ScaleResult `json:"scale"`
	Shared        []ScaleResult `json:"shared"`
	Objects       []Object      `json:"objects"`
	Deploys       []Deploy      `json:"deploys"`
	Node          *Node         `json:"node,omitempty"`
}

// Host is the host of the benchmark.
type Host struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int    `json:"memory_gib"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// Run contains the conditions of a part.
type Run struct {
	// Taken is the time in UTC, and Commit the checked-out commit.
	Taken  string `json:"taken"`
	Commit string `json:"commit"`
	// Load is the load average of the last minute before the part. It shows other load on the host.
	Load float64 `json:"load"`
}

// ProgramCost is the cost of a program that runs for one request.
type ProgramCost struct {
	Name string `json:"name"`
	Cost
}

// ScaleResult is the cost of calls with a number of VMs.
type ScaleResult struct {
	Name    string   `json:"name"`
	VMs     int      `json:"vms"`
	Disks   int      `json:"disks"`
	Methods []Method `json:"methods"`
}

// Method is the cost of a CPI method.
type Method struct {
	Name string `json:"name"`
	// Requests are the requests of a call, as verb and path without names; Bytes is the size of the response bodies.
	Requests []string `json:"requests"`
	Bytes    int64    `json:"bytes"`
	Cost
}

// Object is the size of an object in etcd, in bytes.
type Object struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Deploy is the cost of creating VMs with a disk each, in parallel processes.
type Deploy struct {
	VMs     int `json:"vms"`
	Workers int `json:"workers"`
	// Seconds is the time that the CPI takes. Bare is the time of a minimal client that creates the same objects and waits for them. Both
	// are medians; the other fields describe the CPI's median round.
	Seconds float64 `json:"seconds"`
	Bare    float64 `json:"bare_seconds"`
	// CPU is the CPU time of all calls in seconds. Peak is the largest sum of the peak memory of concurrent calls, in MiB.
	CPU   float64 `json:"cpu_seconds"`
	Peak  float64 `json:"peak_mib"`
	Calls int     `json:"calls"`
	// Create and Attach are the wall times of these calls in milliseconds.
	Create Distribution `json:"create_vm_ms"`
	Attach Distribution `json:"attach_disk_ms"`
}

// Node contains wall times on a real node, in milliseconds: of calls, and of other clients that do a part of the same.
type Node struct {
	// BareStart and BareEnd are the start and the end of a Pod with the stemcell's image that only sleeps.
	BareStart Distribution `json:"bare_start_ms"`
	BareEnd   Distribution `json:"bare_end_ms"`
	// InitStart is the start of a Pod like the VM's that runs the stemcell's init program without the node programs.
	InitStart Distribution `json:"init_start_ms"`
	// BootCPU is the CPU time of the VM's PID 1 until the VM is ready: of `bosh-node vm start`, and then of the init program.
	BootCPU Distribution `json:"boot_cpu_ms"`
	// ClientStart is the time in which a minimal client creates the same Pod and Secret as create_vm, and waits for the agent.
	ClientStart Distribution `json:"client_start_ms"`
	// DiskPodStart and DiskPodEnd are the start and the end of a sleeping Pod with the disk's PVC.
	DiskPodStart Distribution `json:"disk_pod_start_ms"`
	DiskPodEnd   Distribution `json:"disk_pod_end_ms"`
	Create       Distribution `json:"create_vm_ms"`
	Pull         Distribution `json:"create_vm_and_pull_ms,omitempty"` // on a node without the image
	Attach       Distribution `json:"attach_disk_ms"`
	Detach       Distribution `json:"detach_disk_ms"`
	Delete       Distribution `json:"delete_vm_ms"`
	Timeline     []Moment     `json:"timeline"`
	// BootWrites are the versions of the VM Pod that etcd stores from its creation until it is ready, in the last round.
	BootWrites Writes `json:"boot_writes"`
}

// Writes is a number of writes to etcd, and their total size.
type Writes struct {
	Count int `json:"count"`
	Bytes int `json:"bytes"`
}

// Moment is the time of an event, in milliseconds since the start of the call.
type Moment struct {
	What string  `json:"what"`
	At   float64 `json:"at_ms"`
}

// Read returns the results in the file, or nil if the file does not exist.
func Read(path string) (*Results, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	results := new(Results)
	return results, json.Unmarshal(raw, results)
}

// Write writes the results to the file.
func (r *Results) Write(path string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(compact(raw), '\n'), 0o644)
}

// costOf returns the cost of the program, or an empty Cost.
func (r *Results) costOf(name string) Cost {
	for _, call := range r.Calls {
		if call.Name == name {
			return call.Cost
		}
	}
	return Cost{}
}

var (
	numberListPattern = regexp.MustCompile(`\[\s+-?[\d.][\d.,\s-]*\]`)
	flatObjectPattern = regexp.MustCompile(`\{\n[^{}\[\]]*\}`)
	spacePattern      = regexp.MustCompile(`\s+`)
	linePattern       = regexp.MustCompile(`\n\s*`)
)

// compact writes each list of numbers, and each object without lists and objects, on one line, for readable diffs.
func compact(raw []byte) []byte {
	raw = numberListPattern.ReplaceAllFunc(raw, func(list []byte) []byte { return spacePattern.ReplaceAll(list, nil) })
	return flatObjectPattern.ReplaceAllFunc(raw, func(object []byte) []byte { return linePattern.ReplaceAll(object, []byte(" ")) })
}

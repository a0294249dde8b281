package figures

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"
)

// Results are those of the benchmarks' parts. Parts that were not run are empty.
type Results struct {
	// Quick tells the small form.
	Quick   bool `json:"quick"`
	Machine Host `json:"machine"`
	// Runs tell when each part was measured, by its name.
	Runs map[string]Run `json:"runs"`
	// Binary is the size of the CPI's program, in MiB.
	Binary  float64       `json:"binary_mib"`
	Calls   []ProgramCost `json:"calls"`
	Scale   []ScaleResult `json:"scale"`
	Shared  []ScaleResult `json:"shared"`
	Objects []Object      `json:"objects"`
	Deploys []Deploy      `json:"deploys"`
	Node    *Node         `json:"node,omitempty"`
}

// Host is what the figures were taken on.
type Host struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int    `json:"memory_gib"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// Run is what one part was measured with.
type Run struct {
	// Taken is when, in UTC, and Commit what was checked out.
	Taken  string `json:"taken"`
	Commit string `json:"commit"`
	// Load is the number of processes that wanted to run in the minute before: what else was at work.
	Load float64 `json:"load"`
}

// ProgramCost is one program that is run for one request.
type ProgramCost struct {
	Name string `json:"name"`
	Cost
}

// ScaleResult is a crowd of machines, and what calls cost in it.
type ScaleResult struct {
	Name     string   `json:"name"`
	Machines int      `json:"machines"`
	Disks    int      `json:"disks"`
	Methods  []Method `json:"methods"`
}

// Method is what one of the CPI's methods costs.
type Method struct {
	Name string `json:"name"`
	// Requests are those of one call, as verb and path without names; Bytes is what the answers' bodies have.
	Requests []string `json:"requests"`
	Bytes    int64    `json:"bytes"`
	Cost
}

// Object is the size of an object as etcd holds it, in bytes, and how many of them are scripts for the node or the machine.
type Object struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Scripts int    `json:"scripts"`
}

// Deploy is that of so many machines with a disk each, by so many processes at once.
type Deploy struct {
	Machines int `json:"machines"`
	Workers  int `json:"workers"`
	// Seconds of the CPI's calls, and of a minimal client that makes the same objects and waits for the same.
	Seconds float64 `json:"seconds"`
	Bare    float64 `json:"bare_seconds"`
	// CPU is that of all calls, in seconds; Peak the most memory that calls had at the same time, in MiB, if each had its most
	// all the time.
	CPU   float64 `json:"cpu_seconds"`
	Peak  float64 `json:"peak_mib"`
	Calls int     `json:"calls"`
	// Create and Attach are how long these two calls take in the crowd, in milliseconds.
	Create Distribution `json:"create_vm_ms"`
	Attach Distribution `json:"attach_disk_ms"`
}

// Node is what calls take on a real node, in milliseconds, beside a bare Pod of the same image.
type Node struct {
	BareStart Distribution `json:"bare_start_ms"`
	BareEnd   Distribution `json:"bare_end_ms"`
	Create    Distribution `json:"create_vm_ms"`
	Pull      Distribution `json:"create_vm_and_pull_ms,omitempty"` // the same where the node does not have the image
	Attach    Distribution `json:"attach_disk_ms"`
	Detach    Distribution `json:"detach_disk_ms"`
	Delete    Distribution `json:"delete_vm_ms"`
	Timeline  []Moment     `json:"timeline"`
}

// Moment is when something was seen, in milliseconds since the call began.
type Moment struct {
	What string  `json:"what"`
	At   float64 `json:"at_ms"`
}

// Read returns the results in the file, or nil when there is none.
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

// Write writes the results into the file.
func (r *Results) Write(path string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(compact(raw), '\n'), 0o644)
}

// costOf returns the program's figures, or none.
func (r *Results) costOf(name string) Cost {
	for _, each := range r.Calls {
		if each.Name == name {
			return each.Cost
		}
	}
	return Cost{}
}

var (
	numberListPattern = regexp.MustCompile(`\[\s+-?[\d.][\d.,\s-]*\]`)
	spacePattern      = regexp.MustCompile(`\s+`)
)

// compact puts lists of numbers on one line, which is how a reader compares them.
func compact(raw []byte) []byte {
	return numberListPattern.ReplaceAllFunc(raw, func(list []byte) []byte { return spacePattern.ReplaceAll(list, nil) })
}

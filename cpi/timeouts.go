package cpi

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

// Timeouts limit the duration of calls, as Go durations ("90s", "10m"). The error of a call that times out includes what it was
// waiting for.
type Timeouts struct {
	// Request limits how long one request is retried while the API server is unreachable.
	Request metav1.Duration `json:"request"`
	// CreateStemcell includes pushing the image of a heavy stemcell to the registry.
	CreateStemcell metav1.Duration `json:"create_stemcell"`
	// CreateVM includes scheduling, pulling the image and booting.
	CreateVM metav1.Duration `json:"create_vm"`
	// Unschedulable limits how long create_vm waits for a node with capacity for the VM, for example a node that an autoscaler adds; 0
	// disables the wait.
	Unschedulable metav1.Duration `json:"unschedulable"`
	// DeleteVM includes stopping the VM and releasing its disks.
	DeleteVM metav1.Duration `json:"delete_vm"`
	// AttachDisk includes provisioning the volume when it is first used.
	AttachDisk metav1.Duration `json:"attach_disk"`
	// DetachDisk includes the exclusivity check and releasing the device.
	DetachDisk metav1.Duration `json:"detach_disk"`
	// UpdateDisk includes copying the disk's data to its successor.
	UpdateDisk metav1.Duration `json:"update_disk"`
	// Other limits all other calls.
	Other metav1.Duration `json:"other"`
}

// timeout is a row of the table of timeouts.
type timeout struct {
	key      string // in cpi.json; for a method with its own timeout, the method's name
	value    *metav1.Duration
	fallback time.Duration // the default
}

const (
	keyRequest       = "request"       // limits one request, not a call
	keyUnschedulable = "unschedulable" // limits a part of create_vm; 0 is valid
	keyOther         = "other"         // limits methods without their own timeout
)

func (t timeout) limitsCall() bool { return t.key != keyRequest && t.key != keyUnschedulable }

// table lists all timeouts with their defaults. Tests compare the configuration, the job's spec and template, and
// docs/configuration.md with it.
func (t *Timeouts) table() []timeout {
	return []timeout{
		{keyRequest, &t.Request, kube.DefaultRetryTimeout},
		{"create_stemcell", &t.CreateStemcell, 30 * time.Minute},
		{"create_vm", &t.CreateVM, 15 * time.Minute},
		{keyUnschedulable, &t.Unschedulable, 5 * time.Minute},
		{"delete_vm", &t.DeleteVM, 10 * time.Minute},
		{"attach_disk", &t.AttachDisk, 10 * time.Minute},
		{"detach_disk", &t.DetachDisk, 5 * time.Minute},
		{"update_disk", &t.UpdateDisk, 2 * time.Hour},
		{keyOther, &t.Other, 5 * time.Minute},
	}
}

func defaultTimeouts() (t Timeouts) {
	for _, row := range t.table() {
		row.value.Duration = row.fallback
	}
	return t
}

// Validate returns an error for the first invalid timeout in the table's order.
func (t Timeouts) Validate() error {
	for _, row := range t.table() {
		if row.value.Duration < 0 && row.key == keyUnschedulable {
			return fmt.Errorf("timeouts.%s must be at least 0; \"0s\" disables the wait", row.key)
		}
		if row.value.Duration <= 0 && row.key != keyUnschedulable {
			return fmt.Errorf("timeouts.%s must be greater than 0, for example \"5m\"", row.key)
		}
	}
	return nil
}

// longest returns the longest timeout of a call. No call runs longer.
func (t Timeouts) longest() (longest time.Duration) {
	for _, row := range t.table() {
		if row.limitsCall() {
			longest = max(longest, row.value.Duration)
		}
	}
	return longest
}

// forMethod returns the timeout of the method.
func (t Timeouts) forMethod(method string) time.Duration {
	for _, row := range t.table() {
		if row.key == method && row.limitsCall() {
			return row.value.Duration
		}
	}
	return t.Other.Duration
}

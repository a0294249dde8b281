package cpi

import (
	"fmt"
	"maps"
	"slices"
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
	// Other limits all other calls.
	Other metav1.Duration `json:"other"`
}

// methodTimeout is the timeout of a method's calls.
type methodTimeout struct {
	fallback time.Duration // the default
	setting  func(*Timeouts) *metav1.Duration
}

// timeout is a timeout of the configuration.
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

// table lists all timeouts with their defaults. Tests compare the configuration and docs/reference/configuration.md with it.
func (t *Timeouts) table() []timeout {
	rows := []timeout{
		{keyRequest, &t.Request, kube.DefaultRetryTimeout},
		{keyUnschedulable, &t.Unschedulable, 5 * time.Minute},
		{keyOther, &t.Other, 5 * time.Minute},
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if limit := methods[name].timeout; limit.setting != nil {
			rows = append(rows, timeout{name, limit.setting(t), limit.fallback})
		}
	}
	return rows
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
			return fmt.Errorf("kubernetes.timeouts.%s must be at least 0; \"0s\" disables the wait", row.key)
		}
		if row.value.Duration <= 0 && row.key != keyUnschedulable {
			return fmt.Errorf("kubernetes.timeouts.%s must be greater than 0, for example \"5m\"", row.key)
		}
	}
	return nil
}

// Longest returns the longest timeout of a call. No call runs longer.
func (t Timeouts) Longest() (longest time.Duration) {
	for name := range methods {
		longest = max(longest, t.forMethod(name))
	}
	return longest
}

// forMethod returns the timeout of the method.
func (t Timeouts) forMethod(name string) time.Duration {
	if setting := methods[name].timeout.setting; setting != nil {
		return setting(&t).Duration
	}
	return t.Other.Duration
}

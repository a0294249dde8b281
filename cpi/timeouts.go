package cpi

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

// Timeouts bound how long a call may take, as Go durations ("90s", "10m"). A call that ends for lack
// of time says what it was waiting for.
type Timeouts struct {
	// Request is how long one request is repeated while the API server cannot be reached.
	Request metav1.Duration `json:"request"`
	// CreateStemcell covers pushing a heavy stemcell's image to the registry.
	CreateStemcell metav1.Duration `json:"create_stemcell"`
	// CreateVM covers scheduling, pulling the image and booting.
	CreateVM metav1.Duration `json:"create_vm"`
	// Unschedulable is how long of that a machine may wait for a node that takes it, as one that an
	// autoscaler brings; not at all when 0.
	Unschedulable metav1.Duration `json:"unschedulable"`
	// DeleteVM covers stopping the machine and releasing its disks.
	DeleteVM metav1.Duration `json:"delete_vm"`
	// AttachDisk covers provisioning the volume at its first use.
	AttachDisk metav1.Duration `json:"attach_disk"`
	// DetachDisk covers proving the device free and releasing it.
	DetachDisk metav1.Duration `json:"detach_disk"`
	// UpdateDisk covers copying a disk's data to a new one.
	UpdateDisk metav1.Duration `json:"update_disk"`
	// Other bounds every other call.
	Other metav1.Duration `json:"other"`
}

// timeout is a row of the table of timeouts.
type timeout struct {
	key      string // in cpi.json; of a method with a timeout of its own, the method's name
	value    *metav1.Duration
	fallback time.Duration // when it is not given
}

const (
	keyRequest       = "request"       // bounds a request and no call
	keyUnschedulable = "unschedulable" // bounds a part of create_vm, which may be left out
	keyOther         = "other"         // bounds the methods without a row of their own
)

func (t timeout) boundsCalls() bool { return t.key != keyRequest && t.key != keyUnschedulable }

// table is the one list of timeouts that have a default: the configuration, the job's spec and template, and
// the page about the configuration are checked against it.
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

// Validate names the first timeout, in the table's order, that is none.
func (t Timeouts) Validate() error {
	for _, row := range t.table() {
		if row.value.Duration < 0 && row.key == keyUnschedulable {
			return fmt.Errorf("timeouts.%s must not be below 0; \"0s\" does not wait at all", row.key)
		}
		if row.value.Duration <= 0 && row.key != keyUnschedulable {
			return fmt.Errorf("timeouts.%s must be longer than 0, for example \"5m\"", row.key)
		}
	}
	return nil
}

// longest is the time after which no call is still at work.
func (t Timeouts) longest() (longest time.Duration) {
	for _, row := range t.table() {
		if row.boundsCalls() {
			longest = max(longest, row.value.Duration)
		}
	}
	return longest
}

// forMethod returns how long the method may take.
func (t Timeouts) forMethod(method string) time.Duration {
	for _, row := range t.table() {
		if row.key == method && row.boundsCalls() {
			return row.value.Duration
		}
	}
	return t.Other.Duration
}

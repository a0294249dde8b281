package kube

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pvcEventTimeout limits how long MissingStorageClass waits for the first event about a PVC.
const pvcEventTimeout = 5 * time.Second

// MissingStorageClass returns the message of the event that reports that the PVC's StorageClass does not exist. It returns "" if
// there is no such event, or no such PVC. It waits up to 5 s for the first event about the PVC.
func (c *Client) MissingStorageClass(ctx context.Context, name string) (string, error) {
	pvc, err := c.PVCs.Get(ctx, name)
	if err != nil {
		return "", IgnoreNotFound(err)
	}
	ctx, cancel := context.WithTimeout(ctx, pvcEventTimeout)
	defer cancel()
	message := ""
	err = c.Events.Wait(ctx, c.EventsAbout(pvc), nil, func(events []*corev1.Event) (bool, error) {
		for _, event := range events {
			if strings.Contains(event.Message, "storageclass") && strings.Contains(event.Message, "not found") {
				message = event.Message
			}
		}
		return len(events) > 0, nil
	})
	if errors.Is(err, ErrTimeout) {
		return "", nil
	}
	return message, err
}

// maxProvisioningFailures is the number of failures that make Failure report a permanent failure.
const maxProvisioningFailures = 3

// VolumeProvisioning detects permanent failures to provision the volume of a PVC. The zero value is ready to use.
type VolumeProvisioning struct {
	initialized     bool
	initialFailures int // failures before the first call, which do not count: their cause may be fixed
}

// Failure returns the provisioner's last message if it failed three times since the first call, or reports an infeasible request.
// Otherwise it returns "". Call Failure for every change of the PVC's events.
func (p *VolumeProvisioning) Failure(events []*corev1.Event) string {
	var failures int
	var last *corev1.Event
	for _, event := range events {
		if event.Reason != "ProvisioningFailed" {
			continue
		}
		failures += int(max(event.Count, 1))
		if last == nil || last.LastTimestamp.Before(&event.LastTimestamp) {
			last = event
		}
	}
	if !p.initialized {
		p.initialized, p.initialFailures = true, failures
	}
	// A provisioner retries an infeasible request only after minutes.
	if failures-p.initialFailures >= maxProvisioningFailures || last != nil && strings.Contains(last.Message, "infeasible error") {
		return last.Message
	}
	return ""
}

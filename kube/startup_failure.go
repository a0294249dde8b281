package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodStartup follows a Pod that starts, and finds failures for which it is useless to wait longer. The zero value is ready to use.
type PodStartup struct {
	failedPulls int    // how often the image could not be pulled
	lastReason  string // why a container waited at the previous change
}

// A VM that has crashed this often did not crash by chance, and an image that was missing twice is not just late.
const (
	maxCrashes     = 3
	maxFailedPulls = 2
)

// Reasons of a waiting container if the kubelet cannot pull its image: Kubernetes' pkg/kubelet/images/types.go.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// Failed reports whether the Pod can only start if the request or the cluster changes. Call it for every change of the Pod: it
// counts failures.
func (o *PodStartup) Failed(pod *corev1.Pod) bool {
	for _, status := range containerStatuses(pod) {
		waiting := status.State.Waiting
		if waiting == nil {
			o.lastReason = ""
			continue
		}
		if waiting.Reason == reasonErrImagePull && o.lastReason != waiting.Reason {
			o.failedPulls++
		}
		o.lastReason = waiting.Reason
		switch waiting.Reason {
		case "InvalidImageName", "CreateContainerConfigError":
			return true
		case reasonErrImagePull, reasonImagePullBackOff:
			return o.failedPulls >= maxFailedPulls && isPermanentPullError(waiting.Message)
		case "CrashLoopBackOff":
			return status.RestartCount >= maxCrashes
		}
	}
	return false
}

// isPermanentPullError distinguishes a permanent answer of a registry from an outage, by the words of the message.
func isPermanentPullError(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{
		"not found", "manifest unknown", "unauthorized", "denied", "authorization failed", "forbidden",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// WrongPlatform reports whether the Pod's node cannot run its image, which is for other operating systems or architectures. It
// searches for the words of containerd and CRI-O.
func WrongPlatform(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containerStatuses(pod), func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff") &&
			(strings.Contains(waiting.Message, "no match for platform") || strings.Contains(waiting.Message, "no image found in"))
	})
}

// WaitsForNode reports whether the Pod waits for a node that it can run on, and not for a PVC of its own that does not exist or
// is not bound yet.
func WaitsForNode(pod *corev1.Pod) bool {
	reason := UnschedulableReason(pod)
	return reason != "" && !strings.Contains(reason, "ephemeral volume controller") && !HasUnboundPVC(pod)
}

// HasUnboundPVC reports whether the Pod waits for a PVC that is bound before a node is chosen (volumeBindingMode Immediate).
func HasUnboundPVC(pod *corev1.Pod) bool {
	return strings.Contains(UnschedulableReason(pod), "unbound immediate PersistentVolumeClaim")
}

// pvcEventTimeout is how soon the controllers report that they cannot provide a PVC's volume.
const pvcEventTimeout = 5 * time.Second

// MissingStorageClass returns the message of an event that the PVC's StorageClass does not exist, or "". It waits up to 5 s for
// the first event, and returns "" for a PVC that does not exist.
func (c *Client) MissingStorageClass(ctx context.Context, name string) (string, error) {
	pvc, err := c.PVCs.Get(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, pvcEventTimeout)
	defer cancel()
	message := ""
	err = c.Events.Wait(ctx, EventsAbout(pvc), nil, func(events []*corev1.Event) (bool, error) {
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

// VolumeNodeConflict returns the scheduler's message if the Pod, which can run on one node only, waits for a volume that is not
// available there; or "".
func VolumeNodeConflict(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{
		"didn't match PersistentVolume's node affinity", // it is available elsewhere
		"volume node affinity conflict",                 // the same in older schedulers
		"didn't find available persistent volumes to bind",
	}, func(words string) bool { return strings.Contains(reason, words) }) {
		return reason
	}
	return ""
}

// IsPermanentSnapshotError reports whether a VolumeSnapshot's error is permanent, since there is no suitable CSI driver or
// VolumeSnapshotClass. It searches for the words of external-snapshotter (pkg/common-controller/snapshot_controller.go) and
// gRPC.
func IsPermanentSnapshotError(message string) bool {
	return slices.ContainsFunc([]string{
		"Failed to set default snapshot class with error",
		"Failed to get snapshot class with error",
		"cannot find CSI PersistentVolumeSource for volume",
		"code = Unimplemented",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// maxProvisioningFailures is after how many failures during the wait a provisioner is not expected to succeed any more.
const maxProvisioningFailures = 3

// VolumeProvisioning follows the events of a PVC that waits for its volume, and finds failures for which it is useless to wait
// longer. The zero value is ready to use.
type VolumeProvisioning struct {
	initialized     bool
	initialFailures int // failures before the first call: their cause may be fixed since
}

// Failure returns the provisioner's last message if it has failed three times since the first call, or calls the request
// infeasible; or "". Call it for every change of the PVC's events.
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
	// A provisioner repeats a request that it calls infeasible only minutes later.
	if failures-p.initialFailures >= maxProvisioningFailures || last != nil && strings.Contains(last.Message, "infeasible error") {
		return last.Message
	}
	return ""
}

// MultusNetworks follows the events of a Pod that requests networks from Multus, and finds networks that do not exist. The zero
// value is ready to use.
type MultusNetworks struct {
	initialized    bool
	initialReports int // reports before the first call: the network may exist since
}

// Missing returns one of the networks (namespace/name) that an event since the first call reports as missing, and the reported
// cause; or "", "". Call it for every change of the Pod's events.
//
// Multus reports a missing NetworkAttachmentDefinition (pkg/k8sclient/k8sclient.go) in an event NoNetworkFound, and the kubelet
// repeats the message. Multus also reports the cluster's default network as missing, before it finds that elsewhere.
func (a *MultusNetworks) Missing(events []*corev1.Event, networks []string) (network, message string) {
	var reports int
	for _, event := range events {
		for _, candidate := range networks {
			namespace, name, _ := strings.Cut(candidate, "/")
			words := "cannot find a network-attachment-definition (" + name + ") in namespace (" + namespace + "): "
			_, cause, found := strings.Cut(event.Message, words)
			if found && (strings.Contains(cause, "not found") || strings.Contains(cause, "could not find the requested resource")) {
				reports += int(max(event.Count, 1))
				network, message = candidate, cause
			}
		}
	}
	if !a.initialized {
		a.initialized, a.initialReports = true, reports
	}
	if reports == a.initialReports {
		return "", ""
	}
	return network, message
}

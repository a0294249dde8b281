package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodStartup follows a Pod that is to come up, to tell when waiting any longer cannot help.
type PodStartup struct {
	failedPulls int    // how often the image was tried in vain
	lastReason  string // why a container waited when it was last looked at
}

// A machine that ended that often did not end by chance, and an image that was not there twice is not
// just late.
const (
	maxCrashes     = 3
	maxFailedPulls = 2
)

// What the kubelet says of a container whose image it cannot get: pkg/kubelet/images/types.go.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// Failed reports whether nothing but a change of the request or of the cluster lets this Pod come
// up. It has to see every change of the Pod.
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

// isPermanentPullError tells a registry's answer that stays the same, by its words, from an outage.
func isPermanentPullError(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{
		"not found", "manifest unknown", "unauthorized", "denied", "authorization failed", "forbidden",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// WrongPlatform reports whether the Pod's node cannot run its image, which is for other operating systems or
// architectures: by the words of containerd and of CRI-O.
func WrongPlatform(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containerStatuses(pod), func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff") &&
			(strings.Contains(waiting.Message, "no match for platform") || strings.Contains(waiting.Message, "no image found in"))
	})
}

// WaitsForNode reports whether the Pod waits for a node that takes it, and not for a claim of its own that is
// being made.
func WaitsForNode(pod *corev1.Pod) bool {
	reason := UnschedulableReason(pod)
	return reason != "" && !strings.Contains(reason, "ephemeral volume controller") && !HasUnboundPVC(pod)
}

// HasUnboundPVC reports whether the Pod waits for a claim that needs no node to be bound.
func HasUnboundPVC(pod *corev1.Pod) bool {
	return strings.Contains(UnschedulableReason(pod), "unbound immediate PersistentVolumeClaim")
}

// pvcEventTimeout is how soon the controllers report of a claim that they cannot serve.
const pvcEventTimeout = 5 * time.Second

// MissingStorageClass returns what is reported of a claim whose storage class is not there, or "". It waits
// for the first report, for a short while.
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

// VolumeNodeConflict returns the scheduler's words when the Pod, which can run on one node only, waits for
// a volume that is not to be had there, or "".
func VolumeNodeConflict(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{
		"didn't match PersistentVolume's node affinity", // it is elsewhere
		"volume node affinity conflict",                 // the same, as older schedulers say it
		"didn't find available persistent volumes to bind",
	}, func(words string) bool { return strings.Contains(reason, words) }) {
		return reason
	}
	return ""
}

// IsPermanentSnapshotError reports whether a VolumeSnapshot's error says that there can be none, for want of a driver or of a
// class that can. The words are external-snapshotter's, pkg/common-controller/snapshot_controller.go, and gRPC's.
func IsPermanentSnapshotError(message string) bool {
	return slices.ContainsFunc([]string{
		"Failed to set default snapshot class with error",
		"Failed to get snapshot class with error",
		"cannot find CSI PersistentVolumeSource for volume",
		"code = Unimplemented",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// maxProvisioningFailures is how often a provisioner has to fail, while it is looked at, not to be just late.
const maxProvisioningFailures = 3

// VolumeProvisioning follows the events of a claim that is to get its volume, to tell when waiting any longer
// cannot help.
type VolumeProvisioning struct {
	initialized     bool
	initialFailures int // failures before this one looked: the cause may be mended since
}

// Failure returns what the provisioner says when it fails again and again, or "". It has to see every
// change of the claim's events.
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
	// What the provisioner itself calls infeasible it tries again only minutes later.
	if failures-p.initialFailures >= maxProvisioningFailures || last != nil && strings.Contains(last.Message, "infeasible error") {
		return last.Message
	}
	return ""
}

// MultusNetworks follows the events of a Pod that asks Multus for networks, to tell when one of them does not exist.
type MultusNetworks struct {
	initialized    bool
	initialReports int // reports before this one looked: somebody may have created it since
}

// Missing returns the first of the attachments (namespace/name) that does not exist, and what is reported of it; or "". It has to see
// every change of the Pod's events. Multus reports its own words (pkg/k8sclient/k8sclient.go) as NoNetworkFound, and the kubelet
// repeats them. Multus reports so of the cluster's default network, too, before it looks for that elsewhere.
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

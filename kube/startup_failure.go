package kube

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodStartup detects permanent failures of a Pod that starts. The zero value is ready to use.
type PodStartup struct {
	containers map[string]*containerStartup // by name
}

type containerStartup struct {
	failedPulls int
	lastReason  string // why the container waited at the last change
}

// Failures are permanent if they occur this often.
const (
	maxCrashes     = 3
	maxFailedPulls = 2
)

// Reasons of a waiting container if the kubelet cannot pull its image, from Kubernetes' pkg/kubelet/images/types.go.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// Failed reports whether the container of the Pod cannot start without a change of the Pod or the cluster. It counts failures: call it
// for every change of the Pod. Init containers, which run first, count as well, but not other containers: an injected one may fail
// because it needs this one.
func (s *PodStartup) Failed(pod *corev1.Pod, container string) bool {
	if s.containers == nil {
		s.containers = map[string]*containerStartup{}
	}
	failed := false
	for i, status := range containerStatuses(pod) {
		if i >= len(pod.Status.InitContainerStatuses) && status.Name != container {
			continue
		}
		startup := s.containers[status.Name]
		if startup == nil {
			startup = &containerStartup{}
			s.containers[status.Name] = startup
		}
		failed = startup.failed(status) || failed
	}
	return failed
}

func (s *containerStartup) failed(status corev1.ContainerStatus) bool {
	waiting := cmp.Or(status.State.Waiting, &corev1.ContainerStateWaiting{})
	if waiting.Reason == reasonErrImagePull && s.lastReason != waiting.Reason {
		s.failedPulls++
	}
	s.lastReason = waiting.Reason
	switch waiting.Reason {
	case "InvalidImageName", "CreateContainerConfigError":
		return true
	case reasonErrImagePull, reasonImagePullBackOff:
		return s.failedPulls >= maxFailedPulls && isPermanentPullError(waiting.Message)
	case "CrashLoopBackOff":
		return status.RestartCount >= maxCrashes
	}
	return false
}

// isPermanentPullError reports whether the message of a failed pull describes a permanent error, and not an outage.
func isPermanentPullError(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{
		"not found", "manifest unknown", "unauthorized", "denied", "authorization failed", "forbidden",
	}, func(phrase string) bool { return strings.Contains(message, phrase) })
}

// ImagePullError returns the message of the last failure to pull an image of the container, its own or that of a volume, or "".
func ImagePullError(pod *corev1.Pod, container string) string {
	for _, status := range containerStatuses(pod) {
		if status.Name == container && isPullFailure(status.State.Waiting) {
			return status.State.Waiting.Message
		}
	}
	return ""
}

// isPullFailure reports whether a container waits because the last pull of an image failed.
func isPullFailure(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && (waiting.Reason == reasonErrImagePull || waiting.Reason == reasonImagePullBackOff)
}

// WrongPlatform reports whether the Pod's image is for other operating systems or architectures than its node. It recognizes the
// messages of containerd and CRI-O.
func WrongPlatform(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containerStatuses(pod), func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return isPullFailure(waiting) &&
			(strings.Contains(waiting.Message, "no match for platform") || strings.Contains(waiting.Message, "no image found in"))
	})
}

// WaitsForNode reports whether the Pod waits for a suitable node, and not for the creation or binding of a PVC.
func WaitsForNode(pod *corev1.Pod) bool {
	reason := UnschedulableReason(pod)
	return reason != "" && !strings.Contains(reason, "ephemeral volume controller") && !HasUnboundPVC(pod)
}

// HasUnboundPVC reports whether the Pod waits for a PVC that is bound before a node is chosen (volumeBindingMode Immediate).
func HasUnboundPVC(pod *corev1.Pod) bool {
	return strings.Contains(UnschedulableReason(pod), "unbound immediate PersistentVolumeClaim")
}

// pvcEventTimeout limits how long MissingStorageClass waits for the first event about a PVC.
const pvcEventTimeout = 5 * time.Second

// MissingStorageClass returns the message of the event that reports that the PVC's StorageClass does not exist. It returns "" if
// there is no such event, or no such PVC. It waits up to 5 s for the first event about the PVC.
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

// VolumeNodeConflict returns the scheduler's message if a Pod that can run on one node only waits for a volume that is not available
// on that node. Otherwise it returns "".
func VolumeNodeConflict(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{
		"didn't match PersistentVolume's node affinity", // the volume is available on other nodes
		"volume node affinity conflict",                 // the same in older schedulers
		"didn't find available persistent volumes to bind",
	}, func(phrase string) bool { return strings.Contains(reason, phrase) }) {
		return reason
	}
	return ""
}

// IsPermanentSnapshotError reports whether a VolumeSnapshot's error is permanent, because there is no suitable CSI driver or
// VolumeSnapshotClass. It recognizes the messages of external-snapshotter (pkg/common-controller/snapshot_controller.go) and gRPC.
func IsPermanentSnapshotError(message string) bool {
	return slices.ContainsFunc([]string{
		"Failed to set default snapshot class with error",
		"Failed to get snapshot class with error",
		"cannot find CSI PersistentVolumeSource for volume",
		"code = Unimplemented",
	}, func(phrase string) bool { return strings.Contains(message, phrase) })
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

// MultusNetworks detects Multus networks that a Pod requests and that do not exist. The zero value is ready to use.
type MultusNetworks struct {
	initialized    bool
	initialReports int // reports before the first call, which do not count: the network may exist by now
}

// Missing returns one of the networks (NAMESPACE/NAME) that does not exist according to the events since the first call, and the
// reported cause. Otherwise it returns empty strings. Call Missing for every change of the Pod's events.
//
// For a NetworkAttachmentDefinition that does not exist, Multus creates an event NoNetworkFound (pkg/k8sclient/k8sclient.go), and
// the kubelet repeats its message. Multus may also create such an event for the cluster's default network, although that exists.
func (n *MultusNetworks) Missing(events []*corev1.Event, networks []string) (network, message string) {
	var reports int
	for _, event := range events {
		for _, candidate := range networks {
			namespace, name, _ := strings.Cut(candidate, "/")
			prefix := "cannot find a network-attachment-definition (" + name + ") in namespace (" + namespace + "): "
			_, cause, found := strings.Cut(event.Message, prefix)
			if found && (strings.Contains(cause, "not found") || strings.Contains(cause, "could not find the requested resource")) {
				reports += int(max(event.Count, 1))
				network, message = candidate, cause
			}
		}
	}
	if !n.initialized {
		n.initialized, n.initialReports = true, reports
	}
	if reports == n.initialReports {
		return "", ""
	}
	return network, message
}

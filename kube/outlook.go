package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outlook follows a Pod that is to come up, to tell when waiting any longer cannot help.
type Outlook struct {
	pulls  int    // how often the image was tried in vain
	reason string // why a container waited when it was last looked at
}

// A machine that ended that often did not end by chance, and an image that was not there twice is not
// just late.
const (
	enoughCrashes = 3
	enoughPulls   = 2
)

// What the kubelet says of a container whose image it cannot get: pkg/kubelet/images/types.go.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// Hopeless reports whether nothing but a change of the request or of the cluster lets this Pod come
// up. It has to see every change of the Pod.
func (o *Outlook) Hopeless(pod *corev1.Pod) bool {
	for _, status := range containerStatuses(pod) {
		waiting := status.State.Waiting
		if waiting == nil {
			o.reason = ""
			continue
		}
		if waiting.Reason == reasonErrImagePull && o.reason != waiting.Reason {
			o.pulls++
		}
		o.reason = waiting.Reason
		switch waiting.Reason {
		case "InvalidImageName", "CreateContainerConfigError":
			return true
		case reasonErrImagePull, reasonImagePullBackOff:
			return o.pulls >= enoughPulls && noSuchImage(waiting.Message)
		case "CrashLoopBackOff":
			return status.RestartCount >= enoughCrashes
		}
	}
	return false
}

// noSuchImage tells a registry's answer that stays the same, by its words, from an outage.
func noSuchImage(message string) bool {
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

// NoNode reports whether the Pod waits for a node that takes it, and not for a claim of its own that is
// being made.
func NoNode(pod *corev1.Pod) bool {
	reason := Unschedulable(pod)
	return reason != "" && !strings.Contains(reason, "ephemeral volume controller") && !Unbound(pod)
}

// Unbound reports whether the Pod waits for a claim that needs no node to be bound.
func Unbound(pod *corev1.Pod) bool {
	return strings.Contains(Unschedulable(pod), "unbound immediate PersistentVolumeClaim")
}

// claimReport is how soon the controllers report of a claim that they cannot serve.
const claimReport = 5 * time.Second

// MissingClass returns what is reported of a claim whose storage class is not there, or "". It waits
// for the first report, for a short while.
func (c *Client) MissingClass(ctx context.Context, name string) (string, error) {
	claim, err := c.Claims.Get(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, claimReport)
	defer cancel()
	said := ""
	err = c.Events.Await(ctx, EventsAbout(claim), nil, func(events []*corev1.Event) (bool, error) {
		for _, event := range events {
			if strings.Contains(event.Message, "storageclass") && strings.Contains(event.Message, "not found") {
				said = event.Message
			}
		}
		return len(events) > 0, nil
	})
	if errors.Is(err, ErrTimeout) {
		return "", nil
	}
	return said, err
}

// VolumeOutOfReach returns the scheduler's words when the Pod, which can run on one node only, waits for
// a volume that is not to be had there, or "".
func VolumeOutOfReach(pod *corev1.Pod) string {
	reason := Unschedulable(pod)
	if slices.ContainsFunc([]string{
		"didn't match PersistentVolume's node affinity", // it is elsewhere
		"volume node affinity conflict",                 // the same, as older schedulers say it
		"didn't find available persistent volumes to bind",
	}, func(words string) bool { return strings.Contains(reason, words) }) {
		return reason
	}
	return ""
}

// SnapshotHopeless reports whether a VolumeSnapshot's error says that there can be none, for want of a driver or of a
// class that can. The words are external-snapshotter's, pkg/common-controller/snapshot_controller.go, and gRPC's.
func SnapshotHopeless(message string) bool {
	return slices.ContainsFunc([]string{
		"Failed to set default snapshot class with error",
		"Failed to get snapshot class with error",
		"cannot find CSI PersistentVolumeSource for volume",
		"code = Unimplemented",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// enoughProvisions is how often a provisioner has to fail, while it is looked at, not to be just late.
const enoughProvisions = 3

// Provisioning follows the events of a claim that is to get its volume, to tell when waiting any longer
// cannot help.
type Provisioning struct {
	known bool
	past  int // failures before this one looked: the cause may be mended since
}

// Hopeless returns what the provisioner says when it fails again and again, or "". It has to see every
// change of the claim's events.
func (p *Provisioning) Hopeless(events []*corev1.Event) string {
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
	if !p.known {
		p.known, p.past = true, failures
	}
	// What the provisioner itself calls infeasible it tries again only minutes later.
	if failures-p.past >= enoughProvisions || last != nil && strings.Contains(last.Message, "infeasible error") {
		return last.Message
	}
	return ""
}

// Attaching follows the events of a Pod that asks Multus for networks, to tell when one of them does not exist.
type Attaching struct {
	known bool
	past  int // reports before this one looked: somebody may have created it since
}

// Missing returns the first of the attachments (namespace/name) that does not exist, and what is reported of it; or "". It has to see
// every change of the Pod's events. Multus reports its own words (pkg/k8sclient/k8sclient.go) as NoNetworkFound, and the kubelet
// repeats them. Multus reports so of the cluster's default network, too, before it looks for that elsewhere.
func (a *Attaching) Missing(events []*corev1.Event, attachments []string) (attachment, said string) {
	var reports int
	for _, event := range events {
		for _, each := range attachments {
			namespace, name, _ := strings.Cut(each, "/")
			words := "cannot find a network-attachment-definition (" + name + ") in namespace (" + namespace + "): "
			_, cause, found := strings.Cut(event.Message, words)
			if found && (strings.Contains(cause, "not found") || strings.Contains(cause, "could not find the requested resource")) {
				reports += int(max(event.Count, 1))
				attachment, said = each, cause
			}
		}
	}
	if !a.known {
		a.known, a.past = true, reports
	}
	if reports == a.past {
		return "", ""
	}
	return attachment, said
}

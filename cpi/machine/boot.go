package machine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

var (
	errPodEnded      = errors.New("the Pod ended")
	errPodStuck      = errors.New("waiting longer does not help")
	errUnschedulable = errors.New("no node takes the Pod")
	errReplaced      = errors.New("deleted by someone else")
	errPlatform      = errors.New("its node cannot run the image, which is for another architecture: name the image's in " +
		"cloud_properties.node_selector (kubernetes.io/arch), or upload the stemcell again where its registry can be asked")
)

// awaitVM waits until the machine is up and has the address that was asked for. Where waiting cannot
// help it does not wait.
func (s *Session) awaitVM(pod *corev1.Pod, networks network.Networks) error {
	err := s.awaitBoot(pod)
	if err == nil {
		return networks.Verify(pod)
	}
	for _, each := range []struct {
		cause error
		retry bool
	}{
		// Another node, or time, may help.
		{kube.ErrTimeout, true}, {errPodEnded, true}, {errUnschedulable, true}, {errReplaced, true}, {errPlatform, true},
		{errPodStuck, false}, // the operator has to change something
	} {
		if errors.Is(err, each.cause) {
			return call.VMCreationFailed.Wrap(call.Explained(err, "VM "+pod.Name+" did not come up: "+s.Reported(pod)), each.retry)
		}
	}
	return err
}

// prospect is what is known of a machine that is coming up.
type prospect struct {
	outlook kube.Outlook
	claim   bool // whether its claim was looked at
}

// awaitBoot follows the Pod until it is up. Unschedulable it may be for as long as the configuration
// allows, at one go: an autoscaler may bring a node.
func (s *Session) awaitBoot(pod *corev1.Pod) error {
	var known prospect
	for {
		if !known.claim && kube.Unbound(pod) {
			known.claim = true
			why, err := s.MissingClass(s.Ctx, manifest.EphemeralClaim(pod.Name))
			if err != nil {
				return err
			}
			if why != "" {
				return fmt.Errorf("%w: %s", errPodStuck, why)
			}
		}
		bounded, cancel, depends := s, func() {}, s.attachmentsExist(pod)
		waiting := kube.NoNode(pod)
		if waiting {
			bounded, cancel = s.within(s.Unschedulable)
			depends = append(depends, s.nodeComes(pod))
		}
		up, err := bounded.followBoot(depends, pod, &known)
		cancel()
		switch {
		case errors.Is(err, kube.ErrTimeout) && waiting && s.Ctx.Err() == nil:
			return fmt.Errorf("%w after %s", errUnschedulable, s.Unschedulable)
		case up || err != nil:
			return err
		}
	}
}

// followBoot follows the Pod until it is up, which it returns, or cannot come up, or what awaitBoot
// goes by has changed.
func (s *Session) followBoot(depends []call.Sentinel, pod *corev1.Pod, known *prospect) (up bool, err error) {
	waiting := kube.NoNode(pod)
	err = s.Follow(depends, pod, func(now *corev1.Pod) (bool, error) {
		if now == nil || now.DeletionTimestamp != nil {
			return false, call.VMCreationFailed.Errorf("Pod %s was %w while it was coming up", pod.Name, errReplaced)
		}
		up = manifest.Up(pod)
		switch {
		case kube.Finished(pod):
			return false, errPodEnded
		case kube.WrongPlatform(pod):
			return false, errPlatform
		case known.outlook.Hopeless(pod):
			return false, errPodStuck
		case up:
			return true, nil
		case kube.NoNode(pod) != waiting:
			return true, nil
		}
		return !known.claim && kube.Unbound(pod), nil
	})
	return up, err
}

// attachmentsExist returns the sentinel for the networks beside the Pod's own, if it asks for any: it fails when one of them is not
// there.
func (s *Session) attachmentsExist(pod *corev1.Pod) []call.Sentinel {
	attachments := network.AttachmentsOf(pod)
	if len(attachments) == 0 {
		return nil
	}
	pod = pod.DeepCopy() // the wait beside the sentinel keeps its own up to date
	return []call.Sentinel{func(ctx context.Context) error {
		var attaching kube.Attaching
		return s.Events.Await(ctx, kube.EventsAbout(pod), nil, func(events []*corev1.Event) (bool, error) {
			if attachment, said := attaching.Missing(events, attachments); attachment != "" {
				return false, call.VMCreationFailed.Errorf("VM %s did not come up: there is no NetworkAttachmentDefinition %s: %s", pod.Name, attachment, said)
			}
			return false, nil
		})
	}}
}

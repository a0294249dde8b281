package vm

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
	errPodTerminated = errors.New("the Pod ended")
	errPodStuck      = errors.New("waiting longer does not help")
	errUnschedulable = errors.New("no node takes the Pod")
	errPodDeleted    = errors.New("deleted by someone else")
	errPlatform      = errors.New("its node cannot run the image, which is for another architecture: name the image's in " +
		"cloud_properties.node_selector (kubernetes.io/arch), or upload the stemcell again where its registry can be asked")
)

// waitForVM waits until the machine is up and has the address that was asked for. Where waiting cannot
// help it does not wait.
func (s *Session) waitForVM(pod *corev1.Pod, networks network.Networks) error {
	err := s.waitForBoot(pod)
	if err == nil {
		return networks.Verify(pod)
	}
	for _, failure := range []struct {
		cause error
		retry bool
	}{
		// Another node, or time, may help.
		{kube.ErrTimeout, true}, {errPodTerminated, true}, {errUnschedulable, true}, {errPodDeleted, true}, {errPlatform, true},
		{errPodStuck, false}, // the operator has to change something
	} {
		if errors.Is(err, failure.cause) {
			return call.VMCreationFailed.Wrap(call.WithMessage(err, "VM "+pod.Name+" did not come up: "+s.DiagnosePod(pod)), failure.retry)
		}
	}
	return err
}

// bootState is what is known of a machine that is coming up.
type bootState struct {
	diagnosis  kube.PodStartup
	pvcChecked bool // whether its claim was looked at
}

// waitForBoot follows the Pod until it is up. Unschedulable it may be for as long as the configuration
// allows, at one go: an autoscaler may bring a node.
func (s *Session) waitForBoot(pod *corev1.Pod) error {
	var state bootState
	for {
		if !state.pvcChecked && kube.HasUnboundPVC(pod) {
			state.pvcChecked = true
			why, err := s.MissingStorageClass(s.Ctx, manifest.EphemeralPVCName(pod.Name))
			if err != nil {
				return err
			}
			if why != "" {
				return fmt.Errorf("%w: %s", errPodStuck, why)
			}
		}
		bounded, cancel, dependencies := s, func() {}, s.watchNetworkAttachments(pod)
		unscheduled := kube.WaitsForNode(pod)
		if unscheduled {
			bounded, cancel = s.withTimeout(s.UnschedulableTimeout)
			dependencies = append(dependencies, s.watchScaleUp(pod))
		}
		up, err := bounded.waitForBootChange(dependencies, pod, &state)
		cancel()
		switch {
		case errors.Is(err, kube.ErrTimeout) && unscheduled && s.Ctx.Err() == nil:
			return fmt.Errorf("%w after %s", errUnschedulable, s.UnschedulableTimeout)
		case up || err != nil:
			return err
		}
	}
}

// waitForBootChange follows the Pod until it is up, which it returns, or cannot come up, or what awaitBoot
// goes by has changed.
func (s *Session) waitForBootChange(dependencies []call.DependencyWatch, pod *corev1.Pod, state *bootState) (up bool, err error) {
	unscheduled := kube.WaitsForNode(pod)
	err = s.WaitForPod(dependencies, pod, func(now *corev1.Pod) (bool, error) {
		if now == nil || now.DeletionTimestamp != nil {
			return false, call.VMCreationFailed.Errorf("Pod %s was %w while it was coming up", pod.Name, errPodDeleted)
		}
		up = manifest.HasBooted(pod)
		switch {
		case kube.Finished(pod):
			return false, errPodTerminated
		case kube.WrongPlatform(pod):
			return false, errPlatform
		case state.diagnosis.Failed(pod):
			return false, errPodStuck
		case up:
			return true, nil
		case kube.WaitsForNode(pod) != unscheduled:
			return true, nil
		}
		return !state.pvcChecked && kube.HasUnboundPVC(pod), nil
	})
	return up, err
}

// watchNetworkAttachments returns the sentinel for the networks beside the Pod's own, if it asks for any: it fails when one of them is not
// there.
func (s *Session) watchNetworkAttachments(pod *corev1.Pod) []call.DependencyWatch {
	networkAttachments := network.AttachmentsOf(pod)
	if len(networkAttachments) == 0 {
		return nil
	}
	pod = pod.DeepCopy() // the wait beside the sentinel keeps its own up to date
	return []call.DependencyWatch{func(ctx context.Context) error {
		var attaching kube.MultusNetworks
		return s.Events.Wait(ctx, kube.EventsAbout(pod), nil, func(events []*corev1.Event) (bool, error) {
			if definition, message := attaching.Missing(events, networkAttachments); definition != "" {
				return false, call.VMCreationFailed.Errorf(
					"VM %s did not come up: there is no NetworkAttachmentDefinition %s: %s",
					pod.Name,
					definition,
					message,
				)
			}
			return false, nil
		})
	}}
}

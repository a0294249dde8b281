package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

var (
	errPodTerminated = errors.New("the Pod terminated")
	errPodStuck      = errors.New("the Pod cannot start without intervention")
	errUnschedulable = errors.New("no node could run the Pod")
	errPodDeleted    = errors.New("deleted by another client")
	errPlatform      = errors.New("the node cannot run the image, which is for another architecture; set kubernetes.io/arch in " +
		"cloud_properties.node_selector, or upload the stemcell again while the CPI can reach its registry")
)

// waitForVM waits for the VM to boot, and verifies that it has the requested addresses. It fails early if the VM cannot boot.
func (s *Session) waitForVM(pod manifest.VMPod, networks network.Networks) error {
	err := s.waitForBoot(pod)
	if err == nil {
		return networks.VerifyAddresses(pod)
	}
	for _, failure := range []struct {
		cause error
		code  call.Code
		retry bool
	}{
		// A retry may succeed on another node, or later.
		{kube.ErrTimeout, call.CodeVMStartTimeout, true},
		{errPodTerminated, call.CodeVMStartFailed, true},
		{errUnschedulable, call.CodeVMUnschedulable, true},
		{errPodDeleted, call.CodeVMDeletedEarly, true},
		{errPlatform, call.CodeVMWrongPlatform, true},
		{errPodStuck, call.CodeVMStartFailed, false}, // needs a change by the operator
	} {
		if errors.Is(err, failure.cause) {
			explained := call.NodeImageError(pod.Pod)
			if explained == nil {
				explained = call.WithMessage(err, "VM "+pod.Name+" did not start: "+s.DiagnosePod(pod.Pod))
			}
			return failure.code.Wrap(explained, failure.retry)
		}
	}
	return err
}

// bootState is the state of waitForBoot between its waits.
type bootState struct {
	diagnosis  kube.PodStartup
	pvcChecked bool // the StorageClass of the ephemeral PVC was checked
}

// waitForBoot waits for the VM to boot. The Pod may be unschedulable for UnschedulableTimeout, because an autoscaler may add a
// node. The timeout restarts if the Pod becomes unschedulable again.
func (s *Session) waitForBoot(pod manifest.VMPod) error {
	var state bootState
	for {
		if !state.pvcChecked && kube.HasUnboundPVC(pod.Pod) {
			state.pvcChecked = true
			reason, err := s.MissingStorageClass(s.Ctx, manifest.EphemeralPVCName(pod.Name))
			if err != nil {
				return err
			}
			if reason != "" {
				return fmt.Errorf("%w: %s", errPodStuck, reason)
			}
		}
		bounded, cancel, dependencies := s.Call, func() {}, s.watchNetworkAttachments(pod)
		unschedulable := kube.WaitsForNode(pod.Pod)
		if unschedulable {
			bounded, cancel = s.WithTimeout(s.UnschedulableTimeout)
			dependencies = append(dependencies, s.watchScaleUp(pod))
		}
		booted, err := state.waitForChange(bounded, dependencies, pod)
		cancel()
		switch {
		case errors.Is(err, kube.ErrTimeout) && unschedulable && s.Ctx.Err() == nil:
			return fmt.Errorf("%w within %s", errUnschedulable, s.UnschedulableTimeout)
		case booted || err != nil:
			return err
		}
	}
}

// waitForChange waits until the VM is booted or cannot boot, or until waitForBoot must inspect the Pod again, because it became
// unschedulable or schedulable, or has an unbound PVC.
func (state *bootState) waitForChange(c *call.Call, dependencies []call.DependencyWatch, pod manifest.VMPod) (booted bool, err error) {
	unschedulable := kube.WaitsForNode(pod.Pod)
	err = c.WaitForPod(dependencies, pod.Pod, func(current *corev1.Pod) (bool, error) {
		if current == nil || current.DeletionTimestamp != nil {
			return false, call.CodeVMDeletedEarly.Errorf("Pod %s was %w while it started", pod.Name, errPodDeleted)
		}
		booted = pod.HasBooted()
		switch {
		case kube.IsFinished(pod.Pod):
			return false, errPodTerminated
		case kube.WrongPlatform(pod.Pod):
			return false, errPlatform
		case booted:
			return true, nil
		case state.diagnosis.Failed(pod.Pod, manifest.OwnContainerName(pod.Pod)):
			return false, errPodStuck
		case kube.WaitsForNode(pod.Pod) != unschedulable:
			return true, nil
		}
		return !state.pvcChecked && kube.HasUnboundPVC(pod.Pod), nil
	})
	return booted, err
}

// watchNetworkAttachments returns a dependency watch for the network attachments that the Pod requests, if any. It fails if a
// NetworkAttachmentDefinition does not exist.
func (s *Session) watchNetworkAttachments(pod manifest.VMPod) []call.DependencyWatch {
	networkAttachments := network.AttachmentsOf(pod)
	if len(networkAttachments) == 0 {
		return nil
	}
	pod = manifest.VMPod{Pod: pod.DeepCopy()} // the wait updates its own copy concurrently
	return []call.DependencyWatch{func(ctx context.Context) error {
		var attached network.MultusNetworks
		return s.Events.Wait(ctx, s.EventsAbout(pod), nil, func(events []*corev1.Event) (bool, error) {
			if definition, message := attached.Missing(events, networkAttachments); definition != "" {
				return false, call.CodeNetworkAttachmentNotFound.Errorf("VM %s did not start: NetworkAttachmentDefinition %s not found: %s",
					pod.Name, definition, message)
			}
			return false, nil
		})
	}}
}

// recordBoot records that the VM has booted, and makes the dynamic address of the Pod its requested address. When the node reboots, the
// kubelet recreates the Pod's sandbox, and without a request the CNI plugin would assign another address. For a VM with disk_strategy:
// recreate, recordBoot records the addresses of all networks.
func (s *Session) recordBoot(pod manifest.VMPod, networks network.Networks) error {
	annotations := map[string]string{}
	if s.Network.KeepsDynamicAddress(networks, pod) {
		requested, err := s.Network.Annotations(network.PodAddresses(pod))
		if err != nil {
			return err
		}
		maps.Copy(annotations, requested)
	}
	if pod.HasRecreateStrategy() {
		change := manifest.TemplateChange{Addresses: network.PodAddresses(pod), Metadata: &manifest.Metadata{Annotations: annotations}}
		if err := (recreateStrategy{s: s}).persist(pod, change); err != nil {
			return err
		}
	} else { // with disk_strategy: recreate, the ephemeral disk is a PVC, and the next Pod of the VM has it
		annotations[manifest.AnnotationBooted] = strconv.FormatBool(true)
	}
	// The operator, the CNI plugin or an earlier attempt may have set some of them.
	missing := missingAnnotations(annotations, pod.Annotations)
	if len(missing) == 0 {
		return nil
	}
	_, err := s.Pods.Patch(s.Ctx, pod.Name, manifest.PodAnnotationsPatch(pod, missing))
	return err
}

// missingAnnotations returns the annotations that existing lacks, by name.
func missingAnnotations(annotations, existing map[string]string) map[string]string {
	missing := maps.Clone(annotations)
	maps.DeleteFunc(missing, func(name, _ string) bool { _, set := existing[name]; return set })
	return missing
}

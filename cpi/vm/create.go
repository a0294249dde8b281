package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/stemcell"
)

// Request is what create_vm is asked for.
type Request struct {
	AgentID    string
	Stemcell   string          // the stemcell's CID
	Properties json.RawMessage // cloud_properties
	Networks   network.Networks
	Disks      []string        // CIDs of the disks that it is to get
	Env        json.RawMessage // for its agent; it holds credentials
}

// Create makes the machine, waits until it is up, and returns its CID. What was made of one that does not come
// up is removed. Errors about the request are typed and leave the cluster as it was; all others are
// VMCreationFailed.
func (s *Session) Create(request Request) (cid string, err error) {
	vm, settings, err := s.plan(request)
	if err != nil {
		return "", err
	}
	if err := s.EnsurePullSecret(vm.Image); err != nil {
		return "", creationError(err)
	}
	placement, err := s.placeNearDisks(&vm, request.Disks)
	if err != nil {
		return "", creationError(err)
	}
	if err := s.removeAddressConflicts(vm); err != nil {
		return "", creationError(err)
	}
	pod, err := placement.ensureOnSuitableNode(vm, settings)
	if pod != nil {
		s.SetSubject(s.Pods.Reference(pod))
	}
	if err == nil {
		err = s.finishCreate(vm, pod, request.Networks)
	}
	switch {
	case err == nil:
		return vm.Name, nil
	case pod == nil:
		return "", creationError(placement.explainRejectedNodes(err))
	}
	// The cause comes first: its type is the answer's, whatever becomes of the undo.
	return "", errors.Join(
		creationError(s.explainAddresses(pod, request.Networks, placement.explainRejectedNodes(err))),
		s.rollbackCreate(pod),
	)
}

// finishCreate gives the machine's Pod what is around it, and waits until the machine is up.
func (s *Session) finishCreate(vm manifest.VM, pod *corev1.Pod, networks network.Networks) error {
	if err := s.ensureServices(vm.Services, pod); err != nil {
		return err
	}
	if err := s.ensurePDBs(vm, pod); err != nil {
		return err
	}
	if err := s.waitForVM(pod, networks); err != nil {
		return err
	}
	return s.annotateAddresses(pod, networks)
}

// creationError gives an error of create_vm its type; another try can help wherever the cluster's
// state, and not the request, was the reason.
func creationError(err error) error {
	if call.IsTyped(err) {
		return err
	}
	retryable := !errors.Is(err, kube.ErrRefused) && !errors.Is(err, kube.ErrNoCredentials)
	return call.VMCreationFailed.Wrap(call.AsBOSH(err), retryable)
}

// plan checks the whole request and builds what it asks for, the machine and its agent's settings, before
// anything is sent.
func (s *Session) plan(request Request) (vm manifest.VM, settings agentsettings.Files, err error) {
	vm = manifest.VM{
		Name: manifest.VMName(request.AgentID), Director: s.Director, Stemcell: request.Stemcell, Addresses: request.Networks.StaticAddresses(),
	}
	if !manifest.ValidName(vm.Name) {
		return vm, nil, call.Invalid("agent_id %q cannot be part of a Pod's name: use lower-case letters, digits and '-', at most 46 of them",
			request.AgentID)
	}
	if err := s.useStemcell(&vm); err != nil {
		return vm, nil, err
	}
	properties, err := parseProperties(request.Properties)
	if err != nil {
		return vm, nil, err
	}
	if err := request.Networks.Validate(); err != nil {
		return vm, nil, err
	}
	if err := properties.apply(&vm); err != nil {
		return vm, nil, err
	}
	vm.AddPlatformAffinity(stemcell.Architectures(vm.Stemcell)...)
	s.PodOptions.ApplyToVM(&vm)
	if err := s.strategyForVM(vm).validateNetworks(request.Networks); err != nil {
		return vm, nil, err
	}
	if err := properties.applyGroupAndServices(&vm, request.Env, request.Networks); err != nil {
		return vm, nil, err
	}
	if err := s.usePullSecret(&vm); err != nil {
		return vm, nil, err
	}
	if vm.Annotations, err = request.Networks.Annotate(s.Network, vm.Annotations); err != nil {
		return vm, nil, err
	}
	settings, err = s.Agent.Files(agentsettings.VM{
		AgentID: request.AgentID, Name: vm.Name, Networks: request.Networks.ForAgent(), Env: request.Env,
	})
	if err != nil {
		return vm, nil, call.Invalid("%w", err)
	}
	vm.Digest, err = digest(vm, settings)
	return vm, settings, err
}

// useStemcell gives the machine its image, unless its agent cannot be told of disks while it runs.
func (s *Session) useStemcell(vm *manifest.VM) (err error) {
	if s.StemcellAPI != nil {
		if err := stemcell.CheckAPIVersion(*s.StemcellAPI); err != nil {
			return call.Invalid("%w", err)
		}
	}
	if vm.Image, err = s.Stemcell.Image(vm.Stemcell); err != nil {
		return call.StemcellNotFound.Errorf("%w", err)
	}
	return nil
}

// digest identifies the request: two with the same digest make the same machine.
func digest(vm manifest.VM, settings agentsettings.Files) (string, error) {
	raw, err := json.Marshal([]any{vm, settings})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// ensurePodAndSettings makes the Pod, and then the Secret that belongs to it: the kubelet waits for the Secret, and the
// garbage collector finishes what a crash in between left.
//
// The Pod is returned as soon as there is one, with an error too.
func (s *Session) ensurePodAndSettings(vm manifest.VM, settings agentsettings.Files) (*corev1.Pod, error) {
	vm.Namespace, vm.Call = s.Namespace, s.ID()
	pod, err := s.strategyForVM(vm).ensurePod(vm)
	if err != nil {
		return nil, err
	}
	return pod, s.ensureSettingsSecret(vm, settings, pod)
}

// ensureSettingsSecret makes the Secret, in the place of one that belonged to a former Pod.
func (s *Session) ensureSettingsSecret(vm manifest.VM, settings agentsettings.Files, pod *corev1.Pod) error {
	_, _, err := s.Secrets.Ensure(s.Ctx, vm.SettingsSecret(settings, pod), func(existing *corev1.Secret) (bool, error) {
		if kube.OwnedBy(existing, manifest.OwnerReference(pod).UID) {
			return true, nil
		}
		return false, s.Secrets.Delete(s.Ctx, existing)
	})
	return err
}

// rollbackCreate removes what a failed create_vm made, unless a repeated one has adopted it.
func (s *Session) rollbackCreate(pod *corev1.Pod) error {
	cleanup, cancel := s.detached()
	defer cancel()
	if template := cleanup.strategyForPod(pod).templateOf(pod); template != nil {
		deleted, err := recreateStrategy{cleanup}.removeTemplateIfOwned(template)
		if !deleted || err != nil {
			return err
		}
		return cleanup.UpdatePDBAfterDelete(pod)
	}
	gone, err := cleanup.DeletePodIfOwned(pod, call.NeverKeep)
	if !gone || err != nil {
		return err
	}
	return errors.Join(cleanup.removeTemplateAndSecret(pod), cleanup.UpdatePDBAfterDelete(pod))
}

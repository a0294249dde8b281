package machine

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
func (s *Session) Create(wanted Request) (cid string, err error) {
	vm, settings, err := s.plan(wanted)
	if err != nil {
		return "", err
	}
	if err := s.BringPullSecret(vm.Image); err != nil {
		return "", creationFailed(err)
	}
	near, err := s.placeNear(&vm, wanted.Disks)
	if err != nil {
		return "", creationFailed(err)
	}
	if err := s.freeAddresses(vm); err != nil {
		return "", creationFailed(err)
	}
	pod, err := near.bring(vm, settings)
	if pod != nil {
		s.About(s.Pods.Reference(pod))
	}
	if err == nil {
		err = s.bringUp(vm, pod, wanted.Networks)
	}
	switch {
	case err == nil:
		return vm.Name, nil
	case pod == nil:
		return "", creationFailed(near.explain(err))
	}
	// The cause comes first: its type is the answer's, whatever becomes of the undo.
	return "", errors.Join(creationFailed(s.explainAddresses(pod, wanted.Networks, near.explain(err))), s.undo(pod))
}

// bringUp gives the machine's Pod what is around it, and waits until the machine is up.
func (s *Session) bringUp(vm manifest.VM, pod *corev1.Pod, networks network.Networks) error {
	if err := s.bringServices(vm.Services, pod); err != nil {
		return err
	}
	if err := s.bringBudget(vm, pod); err != nil {
		return err
	}
	if err := s.awaitVM(pod, networks); err != nil {
		return err
	}
	return s.keepAddresses(pod, networks)
}

// creationFailed gives an error of create_vm its type; another try can help wherever the cluster's
// state, and not the request, was the reason.
func creationFailed(err error) error {
	if call.IsTyped(err) {
		return err
	}
	mayHelp := !errors.Is(err, kube.ErrRefused) && !errors.Is(err, kube.ErrNoCredentials)
	return call.VMCreationFailed.Wrap(call.AsBOSH(err), mayHelp)
}

// plan checks the whole request and builds what it asks for, the machine and its agent's settings, before
// anything is sent.
func (s *Session) plan(wanted Request) (vm manifest.VM, settings agentsettings.Files, err error) {
	vm = manifest.VM{
		Name: manifest.VMName(wanted.AgentID), Director: s.Director, Stemcell: wanted.Stemcell, Addresses: wanted.Networks.Static(),
	}
	if !manifest.ValidName(vm.Name) {
		return vm, nil, call.Invalid("agent_id %q cannot be part of a Pod's name: use lower-case letters, digits and '-', at most 46 of them",
			wanted.AgentID)
	}
	if err := s.useStemcell(&vm); err != nil {
		return vm, nil, err
	}
	properties, err := parseProperties(wanted.Properties)
	if err != nil {
		return vm, nil, err
	}
	if err := wanted.Networks.Validate(); err != nil {
		return vm, nil, err
	}
	if err := properties.apply(&vm); err != nil {
		return vm, nil, err
	}
	vm.RunsOn(stemcell.Architectures(vm.Stemcell)...)
	s.PodOptions.EquipMachine(&vm)
	if err := s.strategyFor(vm).permit(wanted.Networks); err != nil {
		return vm, nil, err
	}
	if err := properties.applyGroup(&vm, wanted.Env, wanted.Networks); err != nil {
		return vm, nil, err
	}
	if err := s.usePullSecret(&vm); err != nil {
		return vm, nil, err
	}
	if vm.Annotations, err = wanted.Networks.Annotate(s.Network, vm.Annotations); err != nil {
		return vm, nil, err
	}
	settings, err = s.Agent.Files(agentsettings.Machine{
		AgentID: wanted.AgentID, Name: vm.Name, Networks: wanted.Networks.ForAgent(), Env: wanted.Env,
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

// bring makes the Pod, and then the Secret that belongs to it: the kubelet waits for the Secret, and the
// garbage collector finishes what a crash in between left.
//
// The Pod is returned as soon as there is one, with an error too.
func (s *Session) bring(vm manifest.VM, settings agentsettings.Files) (*corev1.Pod, error) {
	vm.Namespace, vm.Call = s.Namespace, s.ID()
	pod, err := s.strategyFor(vm).bring(vm)
	if err != nil {
		return nil, err
	}
	return pod, s.bringSettings(vm, settings, pod)
}

// bringSettings makes the Secret, in the place of one that belonged to a former Pod.
func (s *Session) bringSettings(vm manifest.VM, settings agentsettings.Files, pod *corev1.Pod) error {
	_, _, err := s.Secrets.Bring(s.Ctx, vm.Settings(settings, pod), func(left *corev1.Secret) (bool, error) {
		if kube.OwnedBy(left, manifest.Owner(pod).UID) {
			return true, nil
		}
		return false, s.Secrets.Delete(s.Ctx, left)
	})
	return err
}

// undo removes what a failed create_vm made, unless a repeated one has adopted it.
func (s *Session) undo(pod *corev1.Pod) error {
	undo, cancel := s.detached()
	defer cancel()
	if origin := undo.strategyOf(pod).origin(pod); origin != nil {
		mine, err := recreate{undo}.removeOwnTemplate(origin)
		if !mine || err != nil {
			return err
		}
		return undo.LeaveBudget(pod)
	}
	gone, err := undo.EndOwn(pod, call.Never)
	if !gone || err != nil {
		return err
	}
	return errors.Join(undo.removeRest(pod), undo.LeaveBudget(pod))
}

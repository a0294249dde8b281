package vm

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// Request contains the arguments of create_vm.
type Request struct {
	AgentID    string
	Stemcell   string          // CID
	Properties json.RawMessage // cloud_properties
	Networks   network.Networks
	Disks      []string        // CIDs of the disks that the director will attach
	Env        json.RawMessage // for the agent; contains credentials
}

// Create creates the VM, waits for it to boot, and returns its CID. If the VM does not start, Create deletes its objects.
//
// Errors about the request have their own types, and are returned before Create changes the cluster. All other errors are
// VMCreationFailed.
func (s *Session) Create(request Request) (cid string, err error) {
	vm, settings, err := s.planVM(request)
	if err != nil {
		return "", err
	}
	s.EnsureNodeImage()
	if err := s.EnsurePullSecret(s.Stemcell, vm.Image, vm.NodeImage); err != nil {
		return "", creationError(err)
	}
	placement, err := s.placeNearDisks(&vm, request.Disks)
	if err != nil {
		return "", creationError(err)
	}
	if err := s.removeAddressConflicts(vm); err != nil {
		return "", creationError(err)
	}
	vmPod, err := placement.ensureOnSuitableNode(vm, settings)
	if vmPod.Pod != nil {
		s.SetSubject(s.Pods.Reference(vmPod.Pod))
	}
	if err == nil {
		err = s.finishCreate(vm, vmPod, request.Networks)
	}
	switch {
	case err == nil:
		return vm.Name, nil
	case vmPod.Pod == nil:
		return "", creationError(placement.explain(err))
	}
	// The cause comes first, because the first error determines the type of the response, even if the rollback fails, too.
	return "", errors.Join(
		creationError(s.explainAddresses(vmPod, request.Networks, placement.explain(err))),
		s.rollbackCreate(vmPod),
	)
}

// finishCreate creates the Services and PodDisruptionBudgets of the VM Pod, waits for the VM to boot, and annotates its addresses.
func (s *Session) finishCreate(vm manifest.VM, pod manifest.VMPod, networks network.Networks) error {
	if err := s.ensureServices(vm.Services, pod); err != nil {
		return err
	}
	if err := s.ensurePDBs(vm, pod); err != nil {
		return err
	}
	if err := s.waitForVM(pod, networks); err != nil {
		return err
	}
	return s.recordBoot(pod, networks)
}

// creationError returns an error of create_vm as VMCreationFailed, unless it has a type. It is retryable if the cause is the state
// of the cluster, and not the request or the CPI's credentials.
func creationError(err error) error {
	if call.IsBOSHError(err) {
		return err
	}
	isCause := func(kind error) bool { return errors.Is(err, kind) }
	retryable := !slices.ContainsFunc([]error{kube.ErrDenied, kube.ErrNoCredentials, kube.ErrUnsent, kube.ErrNoNamespace}, isCause)
	if explained := call.AsBOSHError(err); !call.CodeClusterError.Is(explained) {
		err = explained
	}
	return call.CodeVMCreateFailed.Wrap(err, retryable)
}

// planVM validates the whole request, and builds the VM and its agent settings. It sends no requests to the cluster.
func (s *Session) planVM(request Request) (vm manifest.VM, settings agentsettings.Files, err error) {
	vm = manifest.VM{
		Name: manifest.VMName(request.AgentID), Director: s.Director, Stemcell: request.Stemcell, Addresses: request.Networks.StaticAddresses(),
		AgentServer: s.Agent.HasServer(),
	}
	if !manifest.ValidName(vm.Name) {
		return vm, nil, call.CodeInvalidRequest.Errorf("agent_id %q cannot be part of a Pod name; "+
			"use at most 46 lowercase letters, digits and '-'", request.AgentID)
	}
	if err := s.setImage(&vm); err != nil {
		return vm, nil, err
	}
	if vm.NodeImage, err = s.NodeImageReference(); err != nil {
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
	if len(request.Disks) > 0 && !vm.Recreate && !vm.Pod().CanMountDevices() {
		return vm, nil, call.InvalidPropertyf("cannot create VM %s with persistent disks: %w", vm.Name, errCannotMountDevices)
	}
	vm.AddPlatformAffinity(stemcell.Architectures(vm.Stemcell)...)
	s.PodOptions.ApplyToVM(&vm)
	s.warnSmallCPULimit(vm)
	if vm.Recreate && request.Networks.HasDynamicAddress() && !s.Network.KeepDynamicAddresses {
		return vm, nil, call.InvalidPropertyf("cloud_properties.disk_strategy: recreate requires a manual network or " +
			"kubernetes.network.keep_dynamic_addresses; the VM's Pod is recreated for each disk, and would get another address")
	}
	env, err := parseEnv(request.Env)
	if err != nil {
		return vm, nil, err
	}
	env.warnIgnored(s)
	vm.Group, vm.Filesystem = env.BOSH.Group, env.PersistentDiskFS
	if err := properties.applyGroupAndServices(&vm, request.Networks); err != nil {
		return vm, nil, err
	}
	pullSecrets, err := call.PullSecrets(s.Stemcell, vm.Image, vm.NodeImage)
	if err != nil {
		return vm, nil, err
	}
	vm.PullSecrets = append(vm.PullSecrets, pullSecrets...)
	if vm.Annotations, err = request.Networks.PodAnnotations(s.Network, vm.Annotations); err != nil {
		return vm, nil, err
	}
	settings, err = s.Agent.Files(agentsettings.VM{
		AgentID: request.AgentID, Name: vm.Name, Networks: request.Networks.ForAgent(), Env: request.Env,
	})
	if err != nil {
		return vm, nil, call.InvalidPropertyf("%w", err)
	}
	vm.Digest, err = request.digest()
	return vm, settings, err
}

// smallCPULimit is a CPU limit below which the agent fails: it tries to update the certificates three times, for 60 seconds each, which
// takes more than a second of CPU time.
const smallCPULimit = "100m"

func (s *Session) warnSmallCPULimit(vm manifest.VM) {
	if limit, ok := vm.Resources.Limits[corev1.ResourceCPU]; ok && limit.Cmp(resource.MustParse(smallCPULimit)) < 0 {
		s.Log.Warn("the VM's CPU limit is so small that the agent may time out while it updates the certificates; "+
			"set cloud_properties.cpu or resources.limits.cpu to at least "+smallCPULimit, "vm", vm.Name, "limit", limit.String())
	}
}

// setImage sets the VM's image. It rejects a stemcell with an api_version that does not support disks of a running VM.
func (s *Session) setImage(vm *manifest.VM) (err error) {
	if err := stemcell.CheckAPIVersion(s.StemcellAPI); err != nil {
		return call.InvalidPropertyf("%w", err)
	}
	if vm.Image, err = s.Stemcell.Image(vm.Stemcell); err != nil {
		return call.CodeStemcellNotFound.Errorf("%w", err)
	}
	return nil
}

// digest returns a hash of the request: a retried call with the same digest adopts the VM. It does not depend on the objects that a
// version of the CPI creates for the request, so that it survives an upgrade of the CPI.
func (r Request) digest() (string, error) {
	raw, err := json.Marshal([]any{r.AgentID, r.Stemcell, r.Properties, r.Networks, r.Env})
	return fmt.Sprintf("%x", sha256.Sum256(raw)), err
}

// ensurePod creates the VM Pod. An existing Pod of the same name is from an earlier attempt with the same agent ID: ensurePod adopts it
// if the request is the same, and replaces it otherwise.
func (p hotPlugStrategy) ensurePod(vm manifest.VM) (manifest.VMPod, error) {
	pod, outcome, err := call.EnsureOwned(p.s.Call, p.s.Pods, vm.Pod().Pod, func(existing *corev1.Pod) call.Decision {
		return call.AdoptIf(kube.IsActive(existing) && manifest.DigestOf(existing) == vm.Digest)
	}, func(existing *corev1.Pod) error {
		p.s.Log.Info("replacing the Pod of an earlier attempt", "pod", existing.Name)
		return p.s.deleteVMAndWait(manifest.VMPod{Pod: existing})
	})
	if outcome == call.Adopted {
		p.s.Log.Info("adopting the Pod of an earlier attempt", "pod", pod.Name)
	}
	return manifest.VMPod{Pod: pod}, err
}

// ensureSettingsSecret creates the Secret with the agent settings. It replaces the Secret of a former Pod of the VM. The kubelet waits for
// the Secret. The Pod owns it, so that the garbage collector of Kubernetes deletes it with the Pod.
func (s *Session) ensureSettingsSecret(vm manifest.VM, settings agentsettings.Files, pod manifest.VMPod) error {
	_, _, err := s.Secrets.Ensure(s.Ctx, vm.SettingsSecret(settings, pod), func(existing *corev1.Secret) (bool, error) {
		return kube.IsOwnedBy(existing, pod.OwnerReference().UID), nil
	}, func(existing *corev1.Secret) error { return s.Secrets.Delete(s.Ctx, existing) })
	return err
}

// rollbackCreate deletes the objects of a failed create_vm, unless a retried call adopted them.
func (s *Session) rollbackCreate(pod manifest.VMPod) error {
	cleanup, cancel := s.detached(call.CleanupTimeout)
	defer cancel()
	deleted, err := cleanup.deleteVMIfOwned(pod)
	if !deleted || err != nil {
		return err
	}
	return errors.Join(cleanup.removeSecret(pod), cleanup.UpdatePDBAfterDelete(pod))
}

// deleteVMIfOwned deletes the VM Pod and its PodTemplate, if it has one, and waits until they are gone, unless a retried call adopted them.
func (s *Session) deleteVMIfOwned(pod manifest.VMPod) (deleted bool, err error) {
	if template := pod.Template(); template != nil {
		return recreateStrategy{s: s}.removeTemplateIfOwned(template)
	}
	deletion, err := s.DeletePodIfOwned(pod.Pod, call.NeverKeep)
	return deletion != call.Kept, err
}

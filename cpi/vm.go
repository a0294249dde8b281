package cpi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// cleanupTime bounds what is done after a call has failed, when its own time may be over.
const cleanupTime = time.Minute

// createVM makes the machine and waits until it is up. What the director sent of the networks is
// answered unchanged.
func (c *call) createVM(agentID apiv1.AgentID, stemcellCID apiv1.StemcellCID, properties apiv1.CloudPropsImpl,
	networks Networks, disks []apiv1.DiskCID, env json.RawMessage) (apiv1.VMCID, Networks, error) {

	vm, settings, err := c.machine(agentID.AsString(), stemcellCID.AsString(), properties.RawMessage, networks, env)
	if err != nil {
		return apiv1.VMCID{}, nil, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return apiv1.VMCID{}, nil, err
	}
	if err := c.bringPullSecret(cluster, vm.Image); err != nil {
		return apiv1.VMCID{}, nil, creationFailed(err)
	}
	if err := c.placeNear(cluster, &vm, disks); err != nil {
		return apiv1.VMCID{}, nil, err
	}
	pod, err := c.bringVM(cluster, vm, settings)
	if err == nil {
		err = c.bringServices(cluster, vm.Services, pod)
	}
	if err == nil {
		err = c.bringBudget(cluster, vm, pod)
	}
	if err == nil {
		err = c.awaitVM(cluster, pod, networks)
	}
	if err == nil {
		err = c.keepAddresses(cluster, pod, networks)
	}
	if err != nil {
		if pod != nil {
			err = errors.Join(c.explainAddresses(cluster, pod, networks, err), c.undoVM(cluster, pod))
		}
		return apiv1.VMCID{}, nil, creationFailed(err)
	}
	return apiv1.NewVMCID(vm.Name), networks, nil
}

// creationFailed gives an error of create_vm its type; another try can help wherever the cluster's
// state, and not the request, was the reason.
func creationFailed(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	refused := errors.Is(err, kube.ErrRefused)
	return &Error{kind: typeVMFailed, retry: !refused, err: asBOSH(err)}
}

// machine checks the whole request and builds what it asks for, before anything is sent.
func (c *call) machine(agentID, stemcellCID string, properties json.RawMessage, networks Networks, env json.RawMessage) (manifest.VM, agentsettings.Files, error) {
	vm := manifest.VM{
		Name:     manifest.VMName(agentID),
		Director: c.director,
		Stemcell: stemcellCID,
	}
	if !manifest.ValidName(vm.Name) {
		return vm, nil, invalid("agent_id %q cannot be part of a Pod's name: use lower-case letters, digits and '-', at most 46 of them", agentID)
	}
	if err := c.checkStemcellAPI(); err != nil {
		return vm, nil, err
	}
	var err error
	if vm.Image, err = c.config.Stemcell.Image(stemcellCID); err != nil {
		return vm, nil, typed(typeNoStemcell, "%w", err)
	}
	wanted, err := parseVMProperties(properties)
	if err != nil {
		return vm, nil, err
	}
	if err := networks.validate(); err != nil {
		return vm, nil, err
	}
	if err := wanted.apply(&vm); err != nil {
		return vm, nil, err
	}
	if vm.Recreate && networks.dynamic() && !c.config.Network.KeepDynamicAddresses {
		return vm, nil, invalid("cloud_properties.disk_strategy: recreate needs a manual network, or network.keep_dynamic_addresses: the VM's Pod is made again for each disk, and would get another address")
	}
	if err := wanted.applyGroup(&vm, env, networks); err != nil {
		return vm, nil, err
	}
	pull, _, err := c.config.Stemcell.PullSecret(vm.Image)
	if err != nil {
		return vm, nil, err
	}
	if pull != "" {
		vm.PullSecrets = append(vm.PullSecrets, corev1.LocalObjectReference{Name: pull})
	}
	if vm.Annotations, err = networks.annotate(c.config.Network, vm.Annotations); err != nil {
		return vm, nil, err
	}
	settings, err := c.config.Agent.Files(agentsettings.Machine{
		AgentID: agentID, Name: vm.Name, Networks: networks.forAgent(), Env: env,
	})
	if err != nil {
		return vm, nil, err
	}
	vm.Digest, err = digest(vm, settings)
	return vm, settings, err
}

// placeNear makes the machine run where the disks that it is to get can be used. They are a hint: one
// that has no volume yet gets it where the machine is, and one that is gone is attach_disk's to report.
func (c *call) placeNear(cluster *kube.Client, vm *manifest.VM, disks []apiv1.DiskCID) error {
	var volumes []*corev1.PersistentVolume
	for _, disk := range disks {
		claim, err := cluster.Claims.Get(c.ctx, disk.AsString())
		if errors.Is(err, kube.ErrNotFound) || (err == nil && !kube.Bound(claim)) {
			continue
		}
		if err != nil {
			return err
		}
		volume, err := cluster.Volumes.Get(c.ctx, claim.Spec.VolumeName)
		if err != nil {
			return err
		}
		volumes = append(volumes, volume)
	}
	vm.Near(volumes...)
	return nil
}

func merged(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, each := range maps {
		for key, value := range each {
			all[key] = value
		}
	}
	return all
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

// bringVM makes the Pod, and then the Secret that belongs to it: the kubelet waits for the Secret, and the
// garbage collector finishes what a crash in between left.
//
// The Pod is answered as soon as there is one, with an error too.
func (c *call) bringVM(cluster *kube.Client, vm manifest.VM, settings agentsettings.Files) (pod *corev1.Pod, err error) {
	vm.Namespace = cluster.Namespace
	if vm.Recreate {
		pod, err = c.bringRecreated(cluster, vm)
	} else {
		pod, err = c.bringPod(cluster, vm)
	}
	if err != nil {
		return nil, err
	}
	return pod, c.bringSettings(cluster, vm, settings, pod)
}

// bringPod makes the Pod. One of the same name is what an earlier try with the same agent id left: the
// same request adopts it, another replaces it.
func (c *call) bringPod(cluster *kube.Client, vm manifest.VM) (*corev1.Pod, error) {
	pod, _, err := cluster.Pods.Bring(c.ctx, vm.Pod(), func(left *corev1.Pod) (bool, error) {
		if runs(left) && left.Annotations[manifest.AnnotationDigest] == vm.Digest {
			c.log.Info("adopting the Pod that an earlier try left", "pod", left.Name)
			return true, nil
		}
		c.log.Info("replacing the Pod that an earlier try left", "pod", left.Name)
		return false, c.removePod(cluster, left)
	})
	return pod, err
}

// bringSettings makes the Secret, in the place of one that belonged to a former Pod.
func (c *call) bringSettings(cluster *kube.Client, vm manifest.VM, settings agentsettings.Files, pod *corev1.Pod) error {
	_, _, err := cluster.Secrets.Bring(c.ctx, vm.Settings(settings, pod), func(left *corev1.Secret) (bool, error) {
		if ownedBy(left, manifest.Owner(pod).UID) {
			return true, nil
		}
		return false, cluster.Secrets.Delete(c.ctx, left)
	})
	return err
}

// detached is the call with time of its own, for what has to be done after the call's is over.
func (c *call) detached() (*call, context.CancelFunc) {
	detached := *c
	var cancel context.CancelFunc
	detached.ctx, cancel = context.WithTimeout(context.WithoutCancel(c.ctx), cleanupTime)
	return &detached, cancel
}

// undoVM removes what a failed create_vm made.
func (c *call) undoVM(cluster *kube.Client, pod *corev1.Pod) error {
	undo, cancel := c.detached()
	defer cancel()
	return errors.Join(undo.removePod(cluster, pod), undo.leaveBudget(cluster, pod))
}

// removePod deletes a machine's Pod, waits until its node has stopped it, and removes its Secret, and its
// PodTemplate if it has one, without waiting for the garbage collector.
func (c *call) removePod(cluster *kube.Client, pod *corev1.Pod) error {
	if manifest.Recreated(pod) { // no disk is attached to it yet
		if err := cluster.Templates.Delete(c.ctx, templateOf(pod)); err != nil {
			return err
		}
	}
	if err := c.endPod(cluster, pod); err != nil {
		return err
	}
	secret, err := cluster.Secrets.Get(c.ctx, pod.Name)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if ownedBy(secret, manifest.Owner(pod).UID) {
		return cluster.Secrets.Delete(c.ctx, secret)
	}
	return nil
}

func ownedBy(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

// deleteVM removes the machine first, so that nothing uses its disks any more, and then their
// attachments. The disks stay. The Secret is left to the garbage collector.
//
// On a node that does not answer the machine's deletion is asked for as well, and the call fails: the
// machine is gone when the node has come back, or the operator has said that it is off.
func (c *call) deleteVM(cid apiv1.VMCID) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	which := ofVM(cid.AsString())
	found, err := cluster.Pods.List(c.ctx, which)
	if err != nil {
		return nil, err
	}
	template, err := c.doomedTemplate(cluster, cid.AsString(), found.Items)
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 0 && template == nil {
		return nil, vmNotFound(cid.AsString())
	}
	asked, left := map[types.UID]bool{}, found.Items
	err = c.awaitUnless(cluster, c.answers(cluster, nodeOf(found.Items)), which, &found, func(present []*corev1.Pod) (bool, error) {
		left = present
		doomed := present
		if machine := only(manifest.RoleVM, present); len(machine) > 0 {
			doomed = machine
		} else if template != nil && !asked[template.UID] {
			asked[template.UID] = true
			if err := cluster.Templates.Delete(c.ctx, template); err != nil {
				return false, err
			}
			if err := c.leaveBudget(cluster, manifest.Machine(template, "")); err != nil {
				return false, err
			}
		}
		for _, pod := range doomed {
			if asked[pod.UID] {
				continue
			}
			asked[pod.UID] = true
			if err := cluster.Pods.Delete(c.ctx, pod); err != nil {
				return false, err
			}
			if err := c.leaveBudget(cluster, pod); err != nil {
				return false, err
			}
		}
		return len(present) == 0, nil
	})
	if len(left) == 0 {
		return nil, err
	}
	stuck := left[0]
	return nil, c.explainTimeout(cluster, stuck, err, "Pod "+stuck.Name+" does not end on node "+stuck.Spec.NodeName)
}

// ofVM selects a machine's Pod and its attachments.
func ofVM(cid string) kube.Selection {
	return kube.Selection{Labels: manifest.LabelVM + "=" + cid}
}

// nodeOf is the node of a machine's Pod and its attachments, or "" while they have none.
func nodeOf(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return ""
}

func only(role string, pods []*corev1.Pod) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range pods {
		if pod.Labels[manifest.LabelRole] == role {
			found = append(found, pod)
		}
	}
	return found
}

func (c *call) hasVM(cid apiv1.VMCID) (bool, error) {
	cluster, err := c.cluster()
	if err != nil {
		return false, err
	}
	return c.exists(cluster, cid.AsString())
}

// exists reports whether there is such a VM. One that is made again for each disk gets the Pod that it
// lacks.
func (c *call) exists(cluster *kube.Client, vm string) (bool, error) {
	pod, err := cluster.Pods.Get(c.ctx, vm)
	if err == nil && (!manifest.Recreated(pod) || runs(pod)) {
		return pod.Labels[manifest.LabelRole] == manifest.RoleVM, nil
	}
	if err == nil || errors.Is(err, kube.ErrNotFound) {
		err = c.revive(cluster, vm)
	}
	if isVMNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *call) setVMMetadata(cid apiv1.VMCID, metadata map[string]any) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	pod, err := putMetadata(c.ctx, cluster.Pods, cid.AsString(), metadata)
	if errors.Is(err, kube.ErrNotFound) {
		if err := c.revive(cluster, cid.AsString()); err != nil {
			return nil, err
		}
		pod, err = putMetadata(c.ctx, cluster.Pods, cid.AsString(), metadata)
	}
	if err != nil || !manifest.Recreated(pod) {
		return nil, err
	}
	described, err := asMetadata(metadata)
	if err == nil {
		_, err = c.change(cluster, pod.Name, manifest.Change{Metadata: described})
	}
	return nil, err
}

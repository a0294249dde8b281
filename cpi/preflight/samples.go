package preflight

import (
	"context"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/stemcell"
)

// samples are objects as calls would make them, for one machine and its disk. Their names are nobody else's.
type samples struct {
	*subject
	id    string
	image string
}

// nowhere is an image that no registry has.
const nowhere = "registry.invalid/bosh-stemcell@sha256:" + "0000000000000000000000000000000000000000000000000000000000000000"

func (s *subject) samples(ctx context.Context) samples {
	return samples{subject: s, id: "preflight-" + uuid.NewString()[:8], image: s.sampleImage(ctx)}
}

// sampleImage is an image as machines have it: a policy may allow those of some registries alone.
func (s *subject) sampleImage(ctx context.Context) string {
	if s.image != "" {
		return s.image
	}
	if pods, err := s.pods(ctx); err == nil {
		for _, pod := range pods {
			if pod.Labels[manifest.LabelRole] == manifest.RoleVM {
				return manifest.Own(pod).Image
			}
		}
	}
	if registry := s.config.Stemcell.Registry; registry.Repository != "" {
		_, digest, _ := strings.Cut(nowhere, "@")
		pulled := registry.PullRepository
		if pulled == "" {
			pulled = registry.Repository
		}
		return pulled + "@" + digest
	}
	return nowhere
}

func (s samples) vm() (manifest.VM, error) {
	some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	vm := manifest.VM{
		Name: manifest.VMName(s.id), Namespace: s.client.Namespace, Stemcell: s.image, Image: s.image, Group: s.id,
		Services:  []manifest.Service{s.service()},
		Resources: corev1.ResourceRequirements{Requests: some, Limits: some},
	}
	name, _, err := s.config.Stemcell.PullSecret(s.image)
	if err != nil {
		return vm, err
	}
	if name != "" {
		vm.PullSecrets = []corev1.LocalObjectReference{{Name: name}}
	}
	vm.RunsOn(stemcell.Architectures(s.image)...)
	s.config.Pods.EquipMachine(&vm)
	return vm, nil
}

// machine is the VM's Pod as if it ran, with what others need of it.
func (s samples) machine() (*corev1.Pod, error) {
	vm, err := s.vm()
	if err != nil {
		return nil, err
	}
	pod := vm.Pod()
	pod.UID, pod.Spec.NodeName = "00000000-0000-0000-0000-000000000000", "preflight"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifest.OwnName(pod), ContainerID: "containerd://0"}}
	return pod, nil
}

// disk is one of the cluster's default class.
func (s samples) disk(name string) *corev1.PersistentVolumeClaim {
	return manifest.Disk{
		Name: manifest.DiskName(name), Namespace: s.client.Namespace, SizeMiB: 1024, Filesystem: "ext4",
		Mode: corev1.PersistentVolumeFilesystem, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}.Claim()
}

func (s samples) attachment(machine *corev1.Pod) *corev1.Pod {
	return s.config.Pods.Equip(manifest.Attachment{
		Disk: manifest.DiskName(s.id), SizeMiB: 1024, Filesystem: "ext4", Mode: corev1.PersistentVolumeFilesystem, VM: machine,
		PriorityClass: s.config.Disk.AttachmentPriorityClass,
	}.Pod())
}

func (s samples) copying(machine *corev1.Pod) *corev1.Pod {
	successor := s.disk(s.id + "-new")
	successor.UID = machine.UID
	return s.config.Pods.Equip(manifest.Copy{Old: s.disk(s.id), New: successor, Machine: machine, Node: machine.Spec.NodeName}.Pod())
}

func (s samples) service() manifest.Service {
	return manifest.Service{Name: s.id, Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "agent", Port: 6868}}}
}

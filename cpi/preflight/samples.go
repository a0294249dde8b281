package preflight

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/stemcell"
)

// sampleObjects builds objects as calls create them, for one VM and its disk, with unique names.
type sampleObjects struct {
	*clusterState
	id            string
	image         string
	nodeImage     string   // of bosh-node
	architectures []string // of the image; none if they are unknown
	limits        admissionLimits
	limitsError   error // why the limits cannot be read; the samples then do not comply
}

// nonexistentImage is an image that does not exist in any registry.
const nonexistentImage = "registry.invalid/bosh-stemcell@sha256:" + "0000000000000000000000000000000000000000000000000000000000000000"

func (s *clusterState) newSamples(ctx context.Context) sampleObjects {
	image, architectures := s.findSampleImage(ctx)
	nodeImage, err := s.findNodeImage(ctx)
	if err != nil {
		nodeImage = nonexistentImage
	}
	limits, limitsError := s.limits(ctx)
	return sampleObjects{
		clusterState: s, id: "preflight-" + uuid.NewString()[:8], image: image, nodeImage: nodeImage,
		architectures: architectures, limits: limits, limitsError: limitsError,
	}
}

// nodeImages returns the image of bosh-node in the configuration or next to the program.
func (s *clusterState) nodeImages() stemcell.NodeImage {
	return s.config.NodeImageStore(slog.New(slog.DiscardHandler))
}

// findNodeImage returns the image of bosh-node in the configuration or next to the program, or else that of an existing VM. Without any,
// the error is stemcell.ErrNoNodeImage.
func (s *clusterState) findNodeImage(ctx context.Context) (string, error) {
	image, err := s.nodeImages().Reference()
	if !errors.Is(err, stemcell.ErrNoNodeImage) {
		return image, err
	}
	pods, _ := s.pods(ctx) // another check reports the error
	for _, pod := range pods {
		if image := manifest.NodeImage(pod); manifest.HasRole(pod, manifest.RoleVM) && image != "" {
			return image, nil
		}
	}
	return "", err
}

// findSampleImage returns an image that VMs may use, because a policy may allow only the images of some registries, and its architectures
// if they are known.
func (s *clusterState) findSampleImage(ctx context.Context) (image string, architectures []string) {
	if s.requestedImage != "" {
		return s.requestedImage, nil
	}
	if pods, err := s.pods(ctx); err == nil {
		for _, pod := range pods {
			if manifest.HasRole(pod, manifest.RoleVM) {
				return manifest.OwnContainer(pod).Image, stemcell.Architectures(manifest.StemcellOf(pod))
			}
		}
	}
	if registry := s.config.Stemcell.Registry; registry.Repository != "" {
		_, digest, _ := strings.Cut(nonexistentImage, "@")
		return cmp.Or(registry.PullRepository, registry.Repository) + "@" + digest, nil
	}
	return nonexistentImage, nil
}

func (s sampleObjects) buildVM() (manifest.VM, error) {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	vm := manifest.VM{
		Name: manifest.VMName(s.id), Namespace: s.client.Namespace, Stemcell: s.image, Image: s.image, NodeImage: s.nodeImage, Group: s.id,
		Services:  []manifest.Service{s.buildService()},
		Labels:    map[string]string{"bosh-director": "preflight"}, // manifests/network-policy.yaml lets only directors reach the API server
		Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
	}
	var err error
	if vm.PullSecrets, err = call.PullSecrets(s.config.Stemcell, s.image, s.nodeImage); err != nil {
		return vm, err
	}
	vm.AddPlatformAffinity(s.architectures...)
	s.limits.applyTo(&vm)
	s.config.Pods.ApplyToVM(&vm)
	return vm, nil
}

// buildVMPod returns the VM Pod as if it ran, with the fields that the builders of helper Pods read.
func (s sampleObjects) buildVMPod() (manifest.VMPod, error) {
	vm, err := s.buildVM()
	if err != nil {
		return manifest.VMPod{}, err
	}
	pod := vm.Pod()
	pod.UID, pod.Spec.NodeName = "00000000-0000-0000-0000-000000000000", "preflight"
	if len(s.limits.nodes) > 0 {
		pod.Spec.NodeName = s.limits.nodes[0]
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifest.OwnContainerName(pod.Pod), ContainerID: "containerd://0"}}
	return pod, nil
}

// buildDiskPVC returns the PVC of a disk with the default StorageClass.
func (s sampleObjects) buildDiskPVC() manifest.DiskPVC {
	return manifest.Disk{
		Name: manifest.DiskName(s.id), Namespace: s.client.Namespace, SizeMiB: 1024, Filesystem: api.Ext4,
		Mode: corev1.PersistentVolumeFilesystem, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}.PVC()
}

func (s sampleObjects) buildAttachmentPod(vmPod manifest.VMPod) manifest.AttachmentPod {
	desired := manifest.Attachment{
		Disk: manifest.DiskName(s.id), SizeMiB: 1024, Filesystem: api.Ext4, Formatted: true, Preallocate: true,
		Mode: corev1.PersistentVolumeFilesystem, VM: vmPod,
		NodeImage: s.nodeImage, PriorityClass: s.config.Disk.AttachmentPriorityClass,
	}
	return manifest.AttachmentPod{Pod: s.config.Pods.ApplyToHelperPod(desired.Pod().Pod)}
}

func (s sampleObjects) buildService() manifest.Service {
	return manifest.Service{Name: s.id, Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "agent", Port: 6868}}}
}

package manifest

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// Where a machine finds what its Pod gives it.
const (
	vmVolumePath   = "/bosh/machine"
	vmSettingsPath = "/bosh/settings"
	vmDevicesPath  = "/dev/bosh"
	vmLXCFSPath    = "/bosh/lxcfs"

	// NodeDirectory holds a folder per VM on the node, in which its disks' device nodes appear.
	// /run is emptied when the node boots, so no device node outlives the numbers it stands for.
	NodeDirectory = "/run/bosh-kubernetes-cpi"
)

// DevicePath is where a disk appears inside its VM, and the disk's hint for the agent.
func DevicePath(diskCID string) string { return path.Join(vmDevicesPath, diskCID) }

// VM is a machine as create_vm was asked for it.
type VM struct {
	Name      string
	Namespace string
	Director  string
	Stemcell  string // the stemcell's CID
	Image     string
	Digest    string // see AnnotationDigest
	Call      string `json:"-"` // see AnnotationCall; no part of what was asked for

	Group    string            // the name of the instance group, see LabelGroup
	Budget   *DisruptionBudget // how many machines of the group may be away; nil: no matter
	Services []Service         // what the machine is behind

	Addresses   []string // static ones, of its Pod
	Labels      map[string]string
	Annotations map[string]string
	Init        string // path of the init program; found out by the start script when empty

	ReadinessProbe *corev1.Probe // whether it serves; nil: it does once it is up

	Resources       corev1.ResourceRequirements
	SharedMemory    *resource.Quantity                // size of /dev/shm; nil: the runtime's own
	EphemeralClaim  *corev1.PersistentVolumeClaimSpec // nil: the node's own storage
	Recreate        bool                              // for each disk, see Template; needs EphemeralClaim
	NodeSelector    map[string]string
	Affinity        *corev1.Affinity
	Tolerations     []corev1.Toleration
	TopologySpread  []corev1.TopologySpreadConstraint
	PriorityClass   string
	RuntimeClass    *string
	ServiceAccount  string
	PullSecrets     []corev1.LocalObjectReference
	DNSPolicy       corev1.DNSPolicy
	DNSConfig       *corev1.PodDNSConfig
	HostUsers       *bool
	LXCFS           string                  `json:",omitempty"` // folder of the node at which lxcfs is mounted; none when empty
	SecurityContext *corev1.SecurityContext // nil: privileged
}

// meta is the metadata of the machine's Pod.
func (vm VM) meta() metav1.ObjectMeta {
	meta := newObjectMeta(vm.Name, vm.Namespace, vm.Director, RoleVM)
	meta.Labels[LabelVM] = vm.Name
	for _, service := range vm.Services {
		meta.Labels[LabelService(service.Name)] = serviceLabelValue
	}
	if vm.Group != "" {
		meta.Labels[LabelGroup] = GroupLabel(vm.Group)
	}
	if label := AddressLabel(vm.Addresses); label != "" {
		meta.Labels[LabelRequestedAddresses] = label
	}
	for key, value := range vm.Labels {
		if _, own := meta.Labels[key]; !own {
			meta.Labels[key] = value
		}
	}
	meta.Annotations = map[string]string{AnnotationDigest: vm.Digest, AnnotationStemcell: vm.Stemcell, AnnotationCall: vm.Call}
	maps.Copy(meta.Annotations, vm.Annotations)
	vm.annotateGroup(meta.Annotations)
	return meta
}

// servicesDrainSeconds is for how many seconds a VM behind Services serves when its Pod ends: each node's kube-proxy takes a second,
// as it is usually configured, to remove the VM from the endpoints.
const servicesDrainSeconds = 3

// preStopCommand is what is run in the machine when its Pod ends.
func (vm VM) preStopCommand() []string {
	if len(vm.Services) == 0 {
		return node.VMStop()
	}
	return append(node.VMStop(), strconv.Itoa(servicesDrainSeconds))
}

// Pod is the machine. It restarts for ever, never gets a service account's token unless asked to,
// and is never changed after its creation.
func (vm VM) Pod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: vm.meta(),
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{vm.container()},
			Volumes: []corev1.Volume{
				{Name: "machine", VolumeSource: vm.ephemeralVolume()},
				{Name: "settings", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: vm.Name, DefaultMode: new(int32(0o400)),
				}}},
			},
			RestartPolicy:                corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: new(vm.ServiceAccount != ""),
			EnableServiceLinks:           new(false),
			ServiceAccountName:           vm.ServiceAccount,
			NodeSelector:                 vm.NodeSelector,
			Affinity:                     vm.Affinity,
			Tolerations:                  append(slices.Clone(vm.Tolerations), nodeFailureTolerations...),
			TopologySpreadConstraints:    vm.topologySpreadConstraints(),
			PriorityClassName:            vm.PriorityClass,
			RuntimeClassName:             vm.RuntimeClass,
			ImagePullSecrets:             vm.PullSecrets,
			DNSPolicy:                    vm.DNSPolicy,
			DNSConfig:                    vm.DNSConfig,
			HostUsers:                    vm.HostUsers,
		},
	}
	if vm.SharedMemory != nil {
		mountSharedMemory(pod, *vm.SharedMemory)
	}
	if !vm.Recreate {
		mountDevices(pod)
	}
	if vm.LXCFS != "" {
		mountLXCFS(pod, vm.LXCFS)
	}
	return pod
}

// container is what the machine runs in.
func (vm VM) container() corev1.Container {
	security := vm.SecurityContext
	if security == nil {
		security = &corev1.SecurityContext{Privileged: new(true)}
	}
	return corev1.Container{
		Name:            vmContainer,
		Image:           vm.Image,
		Command:         node.VMStart(),
		Args:            initArguments(vm.Init),
		Resources:       vm.Resources,
		SecurityContext: security,
		StartupProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: vm.startupProbeCommand()}},
			PeriodSeconds:    1,
			TimeoutSeconds:   10,
			FailureThreshold: math.MaxInt32, // a machine that boots slowly is not restarted for it
		},
		ReadinessProbe: vm.ReadinessProbe,
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: vm.preStopCommand()},
		}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: "machine", MountPath: vmVolumePath},
			{Name: "settings", MountPath: vmSettingsPath, ReadOnly: true},
		},
	}
}

// mountSharedMemory gives the machine a /dev/shm of this size, in the place of the runtime's.
func mountSharedMemory(pod *corev1.Pod, size resource.Quantity) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "shared-memory", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size},
	}})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "shared-memory", MountPath: "/dev/shm"})
}

// mountDevices gives the machine its folder on the node, in which its disks appear while it runs.
func mountDevices(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "devices", VolumeSource: devicesVolume(pod.Namespace, pod.Name),
	})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
		Name: "devices", MountPath: vmDevicesPath,
		MountPropagation: new(corev1.MountPropagationHostToContainer), // for the disks that appear as directories
	})
}

// mountLXCFS gives the machine the files of its node's lxcfs. A node without it has an empty folder there from then on, at which
// it can be mounted later.
func mountLXCFS(pod *corev1.Pod, lxcfs string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "lxcfs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: lxcfs, Type: new(corev1.HostPathDirectoryOrCreate),
		}},
	})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
		Name: "lxcfs", MountPath: vmLXCFSPath, ReadOnly: true,
		MountPropagation: new(corev1.MountPropagationHostToContainer), // for a lxcfs that starts, or restarts, after the machine
	})
}

// nodeFailureTolerations keeps Kubernetes from deleting the machines of a node that it has not heard of for five
// minutes: they may well be running. Whether a machine is to be replaced is for BOSH to say.
var nodeFailureTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
}

// startupProbeCommand is the command that tells whether the machine is up.
func (vm VM) startupProbeCommand() []string {
	if vm.Recreate {
		return node.AgentConnected()
	}
	return node.AgentRunning()
}

func initArguments(init string) []string {
	if init == "" {
		return nil
	}
	return []string{init}
}

// ephemeralVolume holds /var/vcap, so that it outlives the container.
func (vm VM) ephemeralVolume() corev1.VolumeSource {
	switch {
	case vm.EphemeralClaim == nil:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	case vm.Recreate:
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: EphemeralPVCName(vm.Name)}}
	}
	return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: *vm.EphemeralClaim},
	}}
}

// EphemeralPVCName is the name of the claim of a machine's own storage: the one that Kubernetes gives it.
func EphemeralPVCName(vm string) string { return vm + "-machine" }

func devicesVolume(namespace, vm string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: path.Join(NodeDirectory, namespace, vm),
		Type: new(corev1.HostPathDirectoryOrCreate),
	}}
}

// SettingsSecret is the Secret with what the machine is given for its agent, a key for each file. It belongs to the
// VM and goes with it.
func (vm VM) SettingsSecret(files map[string][]byte, pod *corev1.Pod) *corev1.Secret {
	meta := newObjectMeta(vm.Name, vm.Namespace, vm.Director, RoleVM)
	meta.Labels[LabelVM] = vm.Name
	meta.OwnerReferences = []metav1.OwnerReference{OwnerReference(pod)}
	return &corev1.Secret{
		ObjectMeta: meta,
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
		Data:       files,
	}
}

// Adopt is the strategic merge patch by which a call makes what another has created its own, if it is still as it was read.
func Adopt(object metav1.Object, call string) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": map[string]string{AnnotationCall: call},
	})
}

// AnnotatePod is the strategic merge patch that sets annotations of exactly this Pod, and of no successor.
func AnnotatePod(pod *corev1.Pod, annotations map[string]string) ([]byte, error) {
	return metadataPatch(map[string]any{"uid": pod.UID, "annotations": annotations})
}

// mebibytes is a quantity of n MiB.
func mebibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<20, resource.BinarySI) }

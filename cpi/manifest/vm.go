package manifest

import (
	"maps"
	"math"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// Mount paths in the VM's container.
const (
	vmVolumePath   = "/bosh/ephemeral-disk"
	vmSettingsPath = "/bosh/settings"
	vmDevicesPath  = "/dev/bosh"
	vmLXCFSPath    = "/bosh/lxcfs"
	vmPodPath      = "/bosh/pod"

	// NodeDirectory is a directory on each node. It contains one directory per VM, with the device nodes of the VM's disks. /run is
	// emptied when the node boots, so that no device node remains with numbers of another device.
	NodeDirectory = "/run/bosh-kubernetes-cpi"
)

// ephemeralDiskVolume is the name of the VM Pod's volume for the ephemeral disk.
const ephemeralDiskVolume = "ephemeral-disk"

// DevicePath returns the path of a disk inside its VM, which is also the disk hint for the agent.
func DevicePath(diskCID string) string { return path.Join(vmDevicesPath, diskCID) }

// VM describes a VM as a create_vm call requests it.
type VM struct {
	Name      string
	Namespace string
	Director  string
	Stemcell  string // the stemcell's CID
	Image     string
	NodeImage string // of bosh-node, with a digest
	Digest    string // see AnnotationDigest
	Call      string // see AnnotationCall

	Group      string            // the name of the instance group, see LabelGroup
	Budget     *DisruptionBudget // nil: no PodDisruptionBudget
	Services   []Service         // that route to the VM
	Filesystem string            // see AnnotationFilesystem

	Addresses   []string // requested addresses of the VM Pod
	Labels      map[string]string
	Annotations map[string]string
	Init        string // path of the init program; if empty, the start script searches for it

	ReadinessProbe *corev1.Probe // nil: see readinessProbe
	AgentServer    bool          // the agent listens for requests
	DrainSeconds   int64         // for the drain scripts if Kubernetes deletes the Pod; 0: they do not run

	Resources                 corev1.ResourceRequirements
	SharedMemory              *resource.Quantity                // size of /dev/shm; nil: the runtime's default
	EphemeralClaim            *corev1.PersistentVolumeClaimSpec // nil: emptyDir
	Recreate                  bool                              // see PodTemplate; requires EphemeralClaim
	NodeSelector              map[string]string
	Affinity                  *corev1.Affinity
	Tolerations               []corev1.Toleration
	TopologySpreadConstraints []corev1.TopologySpreadConstraint
	PriorityClass             string
	RuntimeClass              string
	ServiceAccount            string
	PullSecrets               []corev1.LocalObjectReference
	DNSPolicy                 corev1.DNSPolicy
	DNSConfig                 *corev1.PodDNSConfig
	HostUsers                 *bool
	LXCFS                     string                  // mount point of lxcfs on the node; "": no lxcfs
	SecurityContext           *corev1.SecurityContext // nil: privileged
}

// meta returns the metadata of the VM Pod.
func (vm VM) meta() metav1.ObjectMeta {
	meta := newObjectMeta(vm.Name, vm.Namespace, vm.Director, RoleVM)
	meta.Labels[LabelVM] = vm.Name
	for _, service := range vm.Services {
		meta.Labels[ServiceLabel(service.Name)] = serviceLabelValue
	}
	if vm.Group != "" {
		meta.Labels[LabelGroup] = GroupLabel(vm.Group)
	}
	if label := AddressLabel(vm.Addresses); label != "" {
		meta.Labels[LabelRequestedAddresses] = label
	}
	addMissing(meta.Labels, vm.Labels)
	meta.Annotations = map[string]string{AnnotationDigest: vm.Digest, AnnotationStemcell: vm.Stemcell, AnnotationCall: vm.Call}
	if vm.Filesystem != "" {
		meta.Annotations[AnnotationFilesystem] = vm.Filesystem
	}
	maps.Copy(meta.Annotations, vm.Annotations)
	vm.annotateGroup(meta.Annotations)
	return meta
}

// servingSeconds is how many seconds a VM behind Services keeps serving when its Pod is deleted. By default, kube-proxy on
// each node takes up to a second to stop routing to a VM that was removed from the endpoints.
const servingSeconds = 3

// ShutdownSeconds is the time for the shutdown of a VM after its drain scripts. It is the default grace period of Kubernetes.
const ShutdownSeconds = 30

// preStopCommand returns the command that shuts the VM down before its container is stopped.
func (vm VM) preStopCommand() []string {
	serve := 0
	if len(vm.Services) > 0 {
		serve = servingSeconds
	}
	return inVolume(api.VMStop{ServeSeconds: serve, DrainSeconds: int(vm.DrainSeconds)}.Command()...)
}

// Pod returns the VM Pod. Its container is always restarted, and gets a service account token only with ServiceAccount. The Pod's
// spec is never changed after its creation.
func (vm VM) Pod() VMPod {
	pod := &corev1.Pod{
		ObjectMeta: vm.meta(),
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{vm.container()},
			Volumes: []corev1.Volume{
				{Name: ephemeralDiskVolume, VolumeSource: vm.ephemeralVolume()},
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
			RuntimeClassName:             optional(vm.RuntimeClass),
			ImagePullSecrets:             vm.PullSecrets,
			DNSPolicy:                    vm.DNSPolicy,
			DNSConfig:                    vm.DNSConfig,
			HostUsers:                    vm.HostUsers,
		},
	}
	mountNodeImage(pod, vm.NodeImage)
	mountBootRecord(pod)
	if vm.DrainSeconds > 0 {
		pod.Spec.TerminationGracePeriodSeconds = new(vm.DrainSeconds + ShutdownSeconds)
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
	return VMPod{pod}
}

// container returns the VM's container. By default it is privileged.
func (vm VM) container() corev1.Container {
	security := vm.SecurityContext
	if security == nil {
		security = &corev1.SecurityContext{Privileged: new(true)}
	}
	return corev1.Container{
		Name:            VMContainer,
		Image:           vm.Image,
		Command:         inVolume(api.VMStart(vm.Init)...),
		Resources:       vm.Resources,
		SecurityContext: security,
		StartupProbe:    newStartupProbe(vm.startupProbeCommand()),
		ReadinessProbe:  vm.readinessProbe(),
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: vm.preStopCommand()},
		}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: ephemeralDiskVolume, MountPath: vmVolumePath},
			{Name: "settings", MountPath: vmSettingsPath, ReadOnly: true},
		},
	}
}

// mountBootRecord mounts a file with the value of AnnotationBooted.
func mountBootRecord(pod *corev1.Pod) { mountRecord(pod, vmPodPath, "booted", AnnotationBooted) }

// recordVolume is the volume with the value of an annotation of the Pod.
const recordVolume = "pod"

// mountRecord mounts a directory with a file of this name, which has the value of the annotation.
func mountRecord(pod *corev1.Pod, directory, name, annotation string) {
	addVolume(pod, corev1.VolumeMount{Name: recordVolume, MountPath: directory, ReadOnly: true}, corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + annotation + "']"},
		}}},
	})
}

// mountSharedMemory replaces the runtime's /dev/shm by one of this size.
func mountSharedMemory(pod *corev1.Pod, size resource.Quantity) {
	addVolume(pod, corev1.VolumeMount{Name: "shared-memory", MountPath: "/dev/shm"}, corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size},
	})
}

// mountDevices mounts the VM's directory on the node, in which its disks appear while it runs.
func mountDevices(pod *corev1.Pod) {
	addVolume(pod, corev1.VolumeMount{Name: "devices", MountPath: vmDevicesPath}, devicesVolume(pod.Namespace, pod.Name))
}

// mountLXCFS mounts the files of the node's lxcfs. On a node without lxcfs this creates an empty directory, at which lxcfs can be
// mounted later.
func mountLXCFS(pod *corev1.Pod, lxcfs string) {
	addVolume(pod, corev1.VolumeMount{
		Name: "lxcfs", MountPath: vmLXCFSPath, ReadOnly: true,
		MountPropagation: new(corev1.MountPropagationHostToContainer), // for an lxcfs that starts, or restarts, after the VM
	}, hostDirectory(lxcfs))
}

// addVolume adds a volume to the Pod, and mounts it in the first container.
func addVolume(pod *corev1.Pod, mount corev1.VolumeMount, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: mount.Name, VolumeSource: source})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, mount)
}

// nodeFailureTolerations keep Kubernetes from deleting the VM Pods of a node that stops reporting, which it otherwise does after
// five minutes: the VMs may still run, and BOSH decides whether to replace them.
var nodeFailureTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
}

// newStartupProbe returns a startup probe with this command. A container that starts slowly is not restarted.
func newStartupProbe(command []string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
		PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: math.MaxInt32,
	}
}

// startupProbeCommand returns the command that succeeds once the VM is booted.
func (vm VM) startupProbeCommand() []string {
	if vm.Recreate {
		return inVolume("agent", "connected")
	}
	return inVolume("agent", "running")
}

// jobsStoppedFile exists while the jobs of a VM are stopped: the start script creates it on a new VM, and the agent when the director stops
// the jobs. The agent removes it when the director starts them (monit_job_supervisor.go).
const jobsStoppedFile = "/var/vcap/monit/stopped"

// readinessProbe returns the requested probe. The default, for a VM behind a Service or in a group with a DisruptionBudget, fails while the
// VM's jobs are stopped: in an update with create-swap-delete, new VMs exist before their jobs start, and old VMs until the director's next
// cleanup. Any other VM is ready once it is booted, including the VM of create-env: the BOSH CLI stops and starts its jobs through the same
// Service.
func (vm VM) readinessProbe() *corev1.Probe {
	if vm.ReadinessProbe != nil || vm.AgentServer || len(vm.Services) == 0 && vm.Budget == nil {
		return vm.ReadinessProbe
	}
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/usr/bin/test", "!", "-e", jobsStoppedFile}}},
		PeriodSeconds:    5,
		TimeoutSeconds:   30, // a slow node does not stop the traffic
		FailureThreshold: 1,
	}
}

// ephemeralVolume returns the volume for /var/vcap, which outlives the container.
func (vm VM) ephemeralVolume() corev1.VolumeSource {
	switch {
	case vm.EphemeralClaim == nil:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	case vm.Recreate:
		return pvcVolume(EphemeralPVCName(vm.Name))
	}
	return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: *vm.EphemeralClaim},
	}}
}

// EphemeralPVCName returns the name of the PVC of a VM's ephemeral disk. Kubernetes forms it from the names of the Pod and the
// volume: https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming.
func EphemeralPVCName(vm string) string { return vm + "-" + ephemeralDiskVolume }

func devicesVolume(namespace, vm string) corev1.VolumeSource {
	return hostDirectory(path.Join(NodeDirectory, namespace, vm))
}

func hostDirectory(path string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectoryOrCreate)}}
}

func pvcVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// SettingsSecret returns the Secret with the agent settings, one key per file. The VM owns it, and it is deleted with the VM.
func (vm VM) SettingsSecret(files map[string][]byte, pod VMPod) *corev1.Secret {
	meta := newObjectMeta(vm.Name, vm.Namespace, vm.Director, RoleVM)
	meta.Labels[LabelVM] = vm.Name
	meta.OwnerReferences = []metav1.OwnerReference{pod.OwnerReference()}
	return &corev1.Secret{
		ObjectMeta: meta,
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
		Data:       files,
	}
}

// mebibytes returns a quantity of n MiB.
func mebibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<20, resource.BinarySI) }

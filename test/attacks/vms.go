package attacks

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/kube/manifest"
)

// tryVMPod tries to make a VM Pod with a change.
func tryVMPod(change func(*corev1.Pod)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		pod := a.newVMPod()
		change(pod)
		return a.createPod(ctx, pod)
	}
}

// withContainer changes the container of the CPI.
func withContainer(change func(*corev1.Container)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { change(&pod.Spec.Containers[0]) }
}

func addHostPath(path string) func(*corev1.Pod) {
	return addVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}})
}

func addVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
	}
}

func addSidecar(container corev1.Container) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		container.Name, container.Image = "more", sidecarImage
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
}

func withSecurityContext(security corev1.SecurityContext) func(*corev1.Pod) {
	return withContainer(func(c *corev1.Container) { c.SecurityContext = &security })
}

func withCapabilities(capabilities ...corev1.Capability) corev1.SecurityContext {
	return corev1.SecurityContext{Privileged: new(false), Capabilities: &corev1.Capabilities{Add: capabilities}}
}

func vmHostPaths() []Attack {
	folder := func(path, why string) Attack {
		return refused("host-path", "VM Pod that mounts "+path+" of its node", "PSS Baseline: HostPath Volumes", why, tryVMPod(addHostPath(path)))
	}
	return []Attack{
		folder("/", "root on the node"),
		folder("/etc", "users, cron and static Pods of the node"),
		folder("/dev", "all disks of the node"),
		folder("/sys", "settings of the kernel, and cgroups of others"),
		folder("/var/log", "files of the node by the kubelet's view of logs"),
		folder("/var/lib/kubelet", "Secrets and tokens of all Pods of the node"),
		folder("/run/containerd", "the container runtime's socket, and so any container"),
		folder("/var/lib/etcd", "on a node of the control plane: all Secrets of the cluster"),
		folder("/run/bosh-kubernetes-cpi", "the disks of all VMs of the node"),
		folder("/run/bosh-kubernetes-cpi/elsewhere/agent-other", "the disks of a VM of another director"),
		refused("own-folder", "VM Pod with another name in its label, and the folder of that VM", "", "the disks of that VM", tryVMPod(func(pod *corev1.Pod) {
			pod.Labels[manifest.LabelVM] = "agent-one"
			for _, volume := range pod.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = strings.Replace(volume.HostPath.Path, "agent-two", "agent-one", 1)
				}
			}
		})),
		refused("host-path", "VM Pod that can write to its node's lxcfs", "", "cgroups of others", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "lxcfs", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/lxcfs"}}})
			withContainer(func(c *corev1.Container) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "lxcfs", MountPath: "/bosh/lxcfs"})
			})(pod)
		})),
	}
}

func vmNamespaces() []Attack {
	const namespaces = "PSS Baseline: Host Namespaces"
	return []Attack{
		refused("host-namespaces", "VM Pod with the processes of its node", namespaces, "root on the node, by a process of it", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostPID = true })),
		refused("host-namespaces", "VM Pod with the network of its node", namespaces, "what listens on the node's loopback; others' traffic", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })),
		refused("host-namespaces", "VM Pod with the IPC of its node", namespaces, "shared memory of the node's programs", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostIPC = true })),
		refused("host-namespaces", "VM Pod in which containers share their processes", "", "the VM's processes, for an injected container", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ShareProcessNamespace = new(true) })),
		refused("host-ports", "VM Pod with a port of its node", "PSS Baseline: Host Ports", "the place of a program of the node", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}))),
		refused("probe-host", "VM Pod whose readiness probe asks 169.254.169.254", "PSS Baseline: Host Probes / Lifecycle Hooks", "requests from the node, as to the cloud's metadata", tryVMPod(withContainer(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
		}))),
		refused("probe-host", "VM Pod whose liveness probe connects to the node's loopback", "PSS Baseline: Host Probes / Lifecycle Hooks", "whether something listens there", tryVMPod(withContainer(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(2379)}}}
		}))),
		refused("probe-host", "VM Pod whose hook calls a host of its choice", "PSS Baseline: Host Probes / Lifecycle Hooks", "requests from the node", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Lifecycle.PostStart = &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)}}
		}))),
		refused("resource-claims", "VM Pod with a ResourceClaim", "", "devices, also such as others use", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new(foreignName)}}
		})).sinceMinor(34),
	}
}

func vmSecurity() []Attack {
	const unprivileged, capabilities = "privileged_machines", "PSS Baseline: Capabilities"
	capability := func(name corev1.Capability, why string) Attack {
		return refused("capabilities", "VM Pod that adds "+string(name), capabilities, why, tryVMPod(withSecurityContext(withCapabilities(name)))).refusedWith(unprivileged, "false")
	}
	podSecurity := func(security corev1.PodSecurityContext) TryFunc {
		return tryVMPod(func(pod *corev1.Pod) { pod.Spec.SecurityContext = &security })
	}
	return []Attack{
		refused("privileged", "privileged VM Pod", "PSS Baseline: Privileged Containers", "root on the node, by its disks and kernel settings", tryVMPod(func(*corev1.Pod) {})).refusedWith(unprivileged, "false"),
		capability("ALL", "root on the node"),
		capability("DAC_READ_SEARCH", "files of the node, by open_by_handle_at"),
		capability("SYS_MODULE", "code in the node's kernel"),
		capability("SYS_RAWIO", "the node's I/O ports and memory"),
		capability("SYS_PTRACE", "processes of other containers, where a Pod shares them"),
		capability("BPF", "programs in the node's kernel, which see all processes"),
		capability("PERFMON", "memory of the kernel, by tracing"),
		capability("SYSLOG", "addresses of the kernel"),
		capability("SYS_BOOT", "kexec: another kernel on the node"),
		capability("SYS_TIME", "the node's clock"),
		capability("NET_ADMIN", "parts of the kernel's network that only administrators reach"),
		listed("VM Pod that adds SYS_ADMIN", capabilities, "no VM boots without; root on the node unless `isolation` is set", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))).
			withLimit(unprivileged, "false"),
		refused("isolation", "VM Pod without a user namespace or sandbox", "", "root on the node, with SYS_ADMIN", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))).
			refusedWith("isolation", "host_users: false\nruntime_class: gvisor"),
		refused("isolation", "VM Pod with a runtime class that is not a sandbox", "", "root on the node, with SYS_ADMIN", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.RuntimeClassName = new(plainRuntimeClass)
		})).refusedWith("isolation", "runtime_class: gvisor"),
		refused("seccomp", "VM Pod without its node's seccomp profile", "PSS Baseline: Seccomp", "all system calls of the kernel", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}))).refusedWith(unprivileged, "false"),
		refused("security-context", "VM Pod without any seccomp profile for all its containers", "PSS Baseline: Seccomp", "all system calls, for an injected container", podSecurity(corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}})),
		refused("security-context", "VM Pod without AppArmor for all its containers", "PSS Baseline: AppArmor", "less confinement of an injected container", podSecurity(corev1.PodSecurityContext{
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}})),
		listed("VM Pod without AppArmor", "PSS Baseline: AppArmor", "the usual profile denies mount, without which no VM boots", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}))),
		refused("security-context", "VM Pod with the SELinux type spc_t", "PSS Baseline: SELinux", "no confinement by SELinux", podSecurity(corev1.PodSecurityContext{
			SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}})),
		refused("security-context", "VM Pod with a SELinux user and role of the node", "PSS Baseline: SELinux", "no confinement by SELinux", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), SELinuxOptions: &corev1.SELinuxOptions{User: "system_u", Role: "system_r"}}))),
		refused("security-context", "VM Pod with a /proc that hides nothing", "PSS Baseline: /proc Mount Type", "settings of the kernel", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.HostUsers = new(false)
			withSecurityContext(corev1.SecurityContext{Privileged: new(false), ProcMount: new(corev1.UnmaskedProcMount)})(pod)
		})),
		refused("security-context", "VM Pod with a sysctl of the node", "PSS Baseline: Sysctls", "settings of the kernel that others share", podSecurity(corev1.PodSecurityContext{
			Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "65536"}}})),
		refused("security-context", "VM Pod with another user on Windows", "PSS Baseline: HostProcess", "rights of that node's administrator", podSecurity(corev1.PodSecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerAdministrator")}})),
		listed("VM Pod that runs as root", "PSS Restricted: Running as Non-root", "an init needs it; `host_users: false` makes it nobody on the node", tryVMPod(func(*corev1.Pod) {})),
		listed("VM Pod with the user 0", "PSS Restricted: Running as Non-root user", "an init needs it; `host_users: false` makes it nobody on the node", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), RunAsUser: new(int64(0))}))),
		listed("VM Pod that names no seccomp profile", "PSS Restricted: Seccomp", "its node's default: `seccompDefault: true` of the kubelet", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))),
		listed("VM Pod that keeps the capabilities of the container runtime", "PSS Restricted: Capabilities", "MKNOD, NET_RAW and more; drop them in `security.capabilities`", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))),
		listed("VM Pod in which programs gain privileges", "PSS Restricted: Privilege Escalation", "jobs start as root and sudo is theirs to use", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), AllowPrivilegeEscalation: new(true)}))),
		listed("VM Pod that can write to its root filesystem", "NSA/CISA: Immutable container file systems", "a VM's jobs and packages are installed in it", tryVMPod(withContainer(func(c *corev1.Container) {
			c.SecurityContext.ReadOnlyRootFilesystem = new(false)
		}))),
	}
}

func vmIdentity() []Attack {
	const tokens = "NSA/CISA: Protecting Pod service account tokens"
	return []Attack{
		refused("service-account", "VM Pod with the CPI's own service account", tokens, "the token, for the VM's jobs", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" })),
		refused("service-account", "VM Pod with the token of the default service account", tokens, "the rights of that account", tryVMPod(func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(true) })),
		refused("service-account", "VM Pod that projects a token for another audience", tokens, "what trusts the cluster's tokens, as a vault", tryVMPod(addProjectedVolume(corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}}))),
		listed("VM Pod with a service account that `service_accounts` lists", tokens, "list accounts whose rights all jobs may have", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "router" })).
			withLimit("service_accounts", "router"),
		refused("volumes|service-account", "VM Pod that projects a Secret", "", "a Secret that the limits keep from volumes", tryVMPod(addProjectedVolume(corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: foreignName}}}))),
		refused("images", "VM Pod of an image from elsewhere", "NSA/CISA: Building secure container images", "any program, with a VM's privileges", tryVMPod(withContainer(func(c *corev1.Container) { c.Image = "docker.io/library/debian:13" }))),
		refused("images", "VM Pod of an image from a registry with a name that begins alike", "NSA/CISA: Building secure container images", "any program, with a VM's privileges", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Image = "registry.example.com.evil.example/stemcells/jammy:1"
		}))),
		listed("VM Pod of any image that `images` admits, by a tag", "NSA/CISA: Building secure container images", "let only your pipeline push there", tryVMPod(withContainer(func(c *corev1.Container) { c.Image = "registry.example.com/stemcells/other:latest" }))),
		refused("labels|object-labels", "Pod without the CPI's labels", "", "a Pod to which no other rule applies", tryVMPod(func(pod *corev1.Pod) { pod.Labels = nil })),
		refused("labels", "Pod with a role that the CPI does not have", "", "a Pod to which no other rule applies", tryVMPod(func(pod *corev1.Pod) {
			pod.Labels[manifest.LabelRole] = "debug"
			pod.Spec.Volumes = nil
			pod.Spec.Containers = []corev1.Container{{Name: "debug", Image: sidecarImage}}
		})).withLimit("sidecars", sidecarImage),
		refused("containers", "VM Pod without the CPI's container", "", "a container to which no other rule applies", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Containers = []corev1.Container{{Name: "more", Image: sidecarImage}}
		})).withLimit("sidecars", sidecarImage),
		refused("priority-class", "VM Pod before all others on its node", "", "others' Pods are pushed off nodes", tryVMPod(func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-node-critical" })),
		listed("VM Pod that reads a foreign Secret into its environment", "RBAC: listing secrets", "a namespace of its own", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "STOLEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: foreignName}, Key: "password"}}})
		}))),
		listed("VM Pod that pulls its image with a foreign pull Secret", "", "a namespace of its own", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: foreignName}}
		})),
		listed("VM Pod with labels that a foreign Service selects", "", "takes its traffic: a namespace of its own", tryVMPod(func(pod *corev1.Pod) { pod.Labels["app"] = foreignName })),
		listed("VM Pod that a foreign ReplicaSet takes for its own", "", "it then deletes another: a namespace of its own", tryVMPod(func(pod *corev1.Pod) {
			pod.Labels["app"] = foreignName
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: foreignName, UID: "none", Controller: new(true)}}
		})),
		listed("VM Pod with labels to which a foreign NetworkPolicy allows traffic", "NSA/CISA: Network policies", "policies that name a namespace are not affected", tryVMPod(func(pod *corev1.Pod) { pod.Labels["role"] = "database-client" })),
		listed("VM Pod with annotations that a network plugin obeys", "", "what the plugin allows: Multus' networks, Calico's addresses", tryVMPod(func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "kube-system/host-device"}
		})),
	}
}

// addProjectedVolume adds such a volume, named as Kubernetes does.
func addProjectedVolume(source corev1.VolumeProjection) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-more", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}})
	}
}

// addEphemeralVolume adds a volume with a claim of its own.
func addEphemeralVolume(change func(*corev1.PersistentVolumeClaimTemplate)) func(*corev1.Pod) {
	pvc := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(storageClassName), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	change(pvc)
	return addVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: pvc}})
}

func vmVolumes() []Attack {
	source := func(what, why string, source corev1.VolumeSource) Attack {
		return refused("volumes", "VM Pod with "+what, "PSS Restricted: Volume Types", why, tryVMPod(addVolume(source)))
	}
	pvcAttack := func(rule, what string, change func(*corev1.PersistentVolumeClaimTemplate)) Attack {
		return refused(rule, "VM Pod with an ephemeral volume "+what, "", "somebody else's data", tryVMPod(addEphemeralVolume(change)))
	}
	return []Attack{
		source("another VM's settings", "its agent's credentials", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}}),
		source("an NFS server's export", "what trusts the node's address", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
		source("a target of iSCSI", "what trusts the node's address", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2001-04.com.example:storage", Lun: 0}}),
		source("a volume of a CSI driver", "what the driver mounts for whoever asks, as Secrets of a vault", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}),
		source("a volume of a driver on the node", "a program of the node, with options of choice", corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/driver"}}),
		source("another image as a volume", "an image from elsewhere", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "docker.io/library/debian:13"}}).sinceMinor(35),
		source("a ConfigMap", "settings of others", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: foreignName}}}),
		pvcAttack("volumes", "that names a PersistentVolume", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.VolumeName = foreignName }),
		pvcAttack("volumes", "that selects PersistentVolumes", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": foreignName}}
		}),
		pvcAttack("volumes", "with the content of a foreign disk", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: foreignName}
		}),
		pvcAttack("storage-class", "of the class of a static PersistentVolume", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("static") }),
		pvcAttack("storage-class", "of no class", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("") }),
		pvcAttack("storage-class", "that names no class", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = nil }),
		pvcAttack("storage-class", "with another class in its annotation", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "static"}
		}),
		listed("VM Pod with any PersistentVolumeClaim of the namespace", "", "a namespace of its own", tryVMPod(addVolume(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: foreignName}}))),
	}
}

func vmSidecars() []Attack {
	sidecarAttack := func(rule, what, why string, container corev1.Container) Attack {
		return refused(rule, "injected container "+what, "", why, tryVMPod(addSidecar(container))).withLimit("sidecars", sidecarImage)
	}
	containerWith := func(security corev1.SecurityContext) corev1.Container {
		return corev1.Container{SecurityContext: &security}
	}
	return []Attack{
		sidecarAttack("sidecars", "that is privileged", "root on the node", containerWith(corev1.SecurityContext{Privileged: new(true)})),
		sidecarAttack("sidecars", "that adds a capability", "more than the sidecar has", containerWith(withCapabilities("SYS_PTRACE"))),
		sidecarAttack("sidecars", "without a seccomp profile", "all system calls of the kernel", containerWith(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}})),
		sidecarAttack("sidecars", "without AppArmor", "less confinement", containerWith(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}})),
		sidecarAttack("sidecars", "with the VM's folder on the node", "the VM's disks", corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}}}),
		sidecarAttack("sidecars", "with the VM's settings", "its agent's credentials", corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}}),
		sidecarAttack("host-ports", "with a port of its node", "the place of a program of the node", corev1.Container{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}),
		sidecarAttack("probe-host", "with a probe of another host", "requests from the node", corev1.Container{ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}}),
		refused("images", "injected container of an image from elsewhere", "", "any program in the VM's network", tryVMPod(addSidecar(corev1.Container{}))),
		refused("images", "init container of an image from elsewhere", "", "any program in the VM's network", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "docker.io/library/debian:13"}}
		})),
	}
}

func vmPlacement() []Attack {
	return []Attack{
		refused("node-name", "VM Pod on a node of choice, past the scheduler", "", "cordoned and full nodes", tryVMPod(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-b" })),
		refused("node-selector", "VM Pod on any node, by tolerations also of the control plane", "NSA/CISA: Worker node segmentation", "credentials of the control plane, with a privileged VM", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		})).refusedWith("node_selector", "dedicated=bosh"),
		refused("nodes", "VM Pod that asks for a node by its name", "NSA/CISA: Worker node segmentation", "a node that runs somebody's Pods", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Affinity = nodeAffinityTo("node-b")
		})).refusedWith("nodes", "node-of-bosh"),
		listed("VM Pod that another scheduler places", "", "what that scheduler does", tryVMPod(func(pod *corev1.Pod) { pod.Spec.SchedulerName = "another" })),
		listed("Pod that never runs, by a scheduling gate", "", "uses up a quota and nothing else: set a ResourceQuota", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}}
		})),
		listed("VM Pod that asks for all CPU and memory", "NSA/CISA: Resource policies", "set a ResourceQuota and a LimitRange", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1k"), corev1.ResourceMemory: resource.MustParse("1Ti")}
		}))),
		listed("VM Pod that ends in ten years, and keeps its node from being drained", "", "`kubectl delete --force`; nodes of their own", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(315360000))
		})),
	}
}

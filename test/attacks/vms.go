package attacks

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

// tryVMPod returns an attack that creates a changed VM Pod.
func tryVMPod(change func(*corev1.Pod)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		pod := a.newVMPod()
		change(pod)
		return a.createPod(ctx, pod)
	}
}

// withContainer returns a change of a Pod that applies change to the CPI's container.
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
	hostPath := func(path, gain string) Attack {
		return rejected("host-path", "VM Pod with the host path "+path, "PSS Baseline: HostPath Volumes", gain, tryVMPod(addHostPath(path)))
	}
	return []Attack{
		hostPath("/", "root on the node"),
		hostPath("/etc", "users, cron jobs and static Pods of the node"),
		hostPath("/dev", "all disks of the node"),
		hostPath("/sys", "kernel settings, and cgroups of other Pods"),
		hostPath("/var/log", "files on the node, through the kubelet's log endpoint"),
		hostPath("/var/lib/kubelet", "Secrets and tokens of all Pods on the node"),
		hostPath("/run/containerd", "the socket of the container runtime, and with it any container"),
		hostPath("/var/lib/etcd", "all Secrets of the cluster, on a control plane node"),
		hostPath("/run/bosh-kubernetes-cpi", "the disks of all VMs on the node"),
		hostPath("/run/bosh-kubernetes-cpi/elsewhere/agent-other", "the disks of another director's VM"),
		rejected("vm-directory", "VM Pod with another VM's name in its label, and that VM's directory", "", "that VM's disks", tryVMPod(func(pod *corev1.Pod) {
			pod.Labels[manifest.LabelVM] = "agent-one"
			for _, volume := range pod.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = strings.Replace(volume.HostPath.Path, "agent-two", "agent-one", 1)
				}
			}
		})),
		rejected("host-path", "VM Pod with write access to its node's lxcfs", "", "cgroups of other Pods", tryVMPod(func(pod *corev1.Pod) {
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
		rejected("host-namespaces", "VM Pod in the node's PID namespace", namespaces, "root on the node, through one of its processes", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostPID = true })),
		rejected("host-namespaces", "VM Pod in the node's network namespace", namespaces, "services on the node's loopback interface, and traffic of other Pods", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })),
		rejected("host-namespaces", "VM Pod in the node's IPC namespace", namespaces, "shared memory of the node's programs", tryVMPod(func(pod *corev1.Pod) { pod.Spec.HostIPC = true })),
		rejected("host-namespaces", "VM Pod with one PID namespace for all its containers", "", "the VM's processes, for an injected container", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ShareProcessNamespace = new(true) })),
		rejected("host-ports", "VM Pod with a host port", "PSS Baseline: Host Ports", "the port of a program on the node", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}))),
		rejected("probe-host", "VM Pod with a readiness probe of 169.254.169.254", "PSS Baseline: Host Probes / Lifecycle Hooks", "requests from the node, for example to the cloud's metadata service", tryVMPod(withContainer(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
		}))),
		rejected("probe-host", "VM Pod with a liveness probe of the node's loopback interface", "PSS Baseline: Host Probes / Lifecycle Hooks", "a list of open ports on the node", tryVMPod(withContainer(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(2379)}}}
		}))),
		rejected("probe-host", "VM Pod with a lifecycle hook that calls another host", "PSS Baseline: Host Probes / Lifecycle Hooks", "requests from the node", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Lifecycle.PostStart = &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)}}
		}))),
		rejected("resource-claims", "VM Pod with a ResourceClaim", "", "devices, including those of other Pods", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new(othersName)}}
		})).sinceMinor(34),
	}
}

func vmSecurity() []Attack {
	const unprivileged, capabilities = "privileged_vms", "PSS Baseline: Capabilities"
	capability := func(name corev1.Capability, gain string) Attack {
		return rejected("capabilities", "VM Pod with the capability "+string(name), capabilities, gain, tryVMPod(withSecurityContext(withCapabilities(name)))).rejectedWith(unprivileged, "false")
	}
	podSecurity := func(security corev1.PodSecurityContext) TryFunc {
		return tryVMPod(func(pod *corev1.Pod) { pod.Spec.SecurityContext = &security })
	}
	return []Attack{
		rejected("privileged", "privileged VM Pod", "PSS Baseline: Privileged Containers", "root on the node, through its disks and kernel settings", tryVMPod(func(*corev1.Pod) {})).rejectedWith(unprivileged, "false"),
		capability("ALL", "root on the node"),
		capability("DAC_READ_SEARCH", "files on the node, through open_by_handle_at"),
		capability("SYS_MODULE", "code in the node's kernel"),
		capability("SYS_RAWIO", "the node's I/O ports and memory"),
		capability("SYS_PTRACE", "processes of other containers in a shared PID namespace"),
		capability("BPF", "programs in the node's kernel that see all processes"),
		capability("PERFMON", "kernel memory, through tracing"),
		capability("SYSLOG", "kernel addresses"),
		capability("SYS_BOOT", "another kernel on the node, through kexec"),
		capability("SYS_TIME", "the node's clock"),
		capability("NET_ADMIN", "parts of the kernel's network code that only administrators reach"),
		possible("VM Pod with the capability SYS_ADMIN", capabilities, "required to boot a VM; gives root on the node unless `isolation` is set", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))).
			withLimit(unprivileged, "false"),
		rejected("isolation", "VM Pod without a user namespace or sandbox", "", "root on the node, with SYS_ADMIN", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))).
			rejectedWith("isolation", "host_users: false\nruntime_class: gvisor"),
		rejected("isolation", "VM Pod with a runtime class that is not a sandbox", "", "root on the node, with SYS_ADMIN", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.RuntimeClassName = new(plainRuntimeClass)
		})).rejectedWith("isolation", "runtime_class: gvisor"),
		rejected("seccomp", "VM Pod with the seccomp profile Unconfined", "PSS Baseline: Seccomp", "all system calls", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}))).rejectedWith(unprivileged, "false"),
		rejected("security-context", "VM Pod with the seccomp profile Unconfined for all its containers", "PSS Baseline: Seccomp", "all system calls, for an injected container", podSecurity(corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}})),
		rejected("security-context", "VM Pod with the AppArmor profile Unconfined for all its containers", "PSS Baseline: AppArmor", "less confinement of an injected container", podSecurity(corev1.PodSecurityContext{
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}})),
		possible("VM Pod with the AppArmor profile Unconfined", "PSS Baseline: AppArmor", "required: the default profile denies mount, which a VM needs to boot", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}))),
		rejected("security-context", "VM Pod with the SELinux type spc_t", "PSS Baseline: SELinux", "no confinement by SELinux", podSecurity(corev1.PodSecurityContext{
			SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}})),
		rejected("security-context", "VM Pod with an SELinux user and role of the node", "PSS Baseline: SELinux", "no confinement by SELinux", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), SELinuxOptions: &corev1.SELinuxOptions{User: "system_u", Role: "system_r"}}))),
		rejected("security-context", "VM Pod with an unmasked /proc", "PSS Baseline: /proc Mount Type", "kernel settings", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.HostUsers = new(false)
			withSecurityContext(corev1.SecurityContext{Privileged: new(false), ProcMount: new(corev1.UnmaskedProcMount)})(pod)
		})),
		rejected("security-context", "VM Pod with a sysctl", "PSS Baseline: Sysctls", "kernel settings that other Pods share", podSecurity(corev1.PodSecurityContext{
			Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "65536"}}})),
		rejected("security-context", "VM Pod with a Windows user", "PSS Baseline: HostProcess", "administrator permissions on a Windows node", podSecurity(corev1.PodSecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerAdministrator")}})),
		possible("VM Pod that runs as root", "PSS Restricted: Running as Non-root", "required by init; with `host_users: false`, an unprivileged user on the node", tryVMPod(func(*corev1.Pod) {})),
		possible("VM Pod with the user ID 0", "PSS Restricted: Running as Non-root user", "required by init; with `host_users: false`, an unprivileged user on the node", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), RunAsUser: new(int64(0))}))),
		possible("VM Pod without a seccomp profile", "PSS Restricted: Seccomp", "gets the node's default; set `seccompDefault: true` in the kubelet's configuration", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))),
		possible("VM Pod with the default capabilities of the container runtime", "PSS Restricted: Capabilities", "MKNOD, NET_RAW and more; drop them in `security.capabilities`", tryVMPod(withSecurityContext(withCapabilities("SYS_ADMIN")))),
		possible("VM Pod with privilege escalation", "PSS Restricted: Privilege Escalation", "required: jobs start as root and may use sudo", tryVMPod(withSecurityContext(corev1.SecurityContext{
			Privileged: new(false), AllowPrivilegeEscalation: new(true)}))),
		possible("VM Pod with a writable root filesystem", "NSA/CISA: Immutable container file systems", "required: the agent installs jobs and packages in it", tryVMPod(withContainer(func(c *corev1.Container) {
			c.SecurityContext.ReadOnlyRootFilesystem = new(false)
		}))),
	}
}

func vmIdentity() []Attack {
	const tokens = "NSA/CISA: Protecting Pod service account tokens"
	return []Attack{
		rejected("service-account", "VM Pod with the CPI's service account", tokens, "the token, for the VM's jobs", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" })),
		rejected("service-account", "VM Pod with the token of the default service account", tokens, "the permissions of that account", tryVMPod(func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(true) })),
		rejected("service-account", "VM Pod with a projected token for another audience", tokens, "access to services that trust the cluster's tokens, for example a vault", tryVMPod(addProjectedVolume(corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}}))),
		possible("VM Pod with a service account that `service_accounts` lists", tokens, "list only accounts with permissions that every job may have", tryVMPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "router" })).
			withLimit("service_accounts", "router"),
		rejected("volumes|service-account", "VM Pod with a projected Secret", "", "a Secret that the policy rejects as a volume", tryVMPod(addProjectedVolume(corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}}}))),
		rejected("images", "VM Pod with an image from another registry", "NSA/CISA: Building secure container images", "any program with a VM's privileges", tryVMPod(withContainer(func(c *corev1.Container) { c.Image = foreignImage }))),
		rejected("images", "VM Pod with an image from a registry with the same name prefix", "NSA/CISA: Building secure container images", "any program with a VM's privileges", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Image = "registry.example.com.evil.example/stemcells/jammy:1"
		}))),
		possible("VM Pod with any image that `images` admits, by tag", "NSA/CISA: Building secure container images", "let only your pipeline push there", tryVMPod(withContainer(func(c *corev1.Container) { c.Image = otherStemcell }))),
		rejected("labels|object-labels", "Pod without the CPI's labels", "", "a Pod to which no other rule applies", tryVMPod(func(pod *corev1.Pod) { pod.Labels = nil })),
		rejected("labels", "Pod with an unknown role", "", "a Pod to which no other rule applies", tryVMPod(func(pod *corev1.Pod) {
			pod.Labels[manifest.LabelRole] = "debug"
			pod.Spec.Volumes = nil
			pod.Spec.Containers = []corev1.Container{{Name: "debug", Image: sidecarImage}}
		})).withLimit("sidecars", sidecarImage),
		rejected("containers", "VM Pod without the CPI's container", "", "a container to which no other rule applies", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Containers = []corev1.Container{{Name: "more", Image: sidecarImage}}
		})).withLimit("sidecars", sidecarImage),
		rejected("priority-class", "VM Pod with a system priority class", "", "preemption of other Pods", tryVMPod(func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-cluster-critical" })),
		rejected("priority-class", "VM Pod with the priority class of attachment Pods, even if `priority_classes` contains it", "", "preemption of other Pods", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.PriorityClassName = manifest.AttachmentPriorityClass
		})).withLimit("priority_classes", manifest.AttachmentPriorityClass),
		possible("VM Pod with another user's Secret in its environment", "RBAC: listing secrets", dedicatedNamespace, tryVMPod(withContainer(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "STOLEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}, Key: "password"}}})
		}))),
		possible("VM Pod with another user's pull Secret", "", dedicatedNamespace, tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: othersName}}
		})),
		possible("VM Pod with labels that another user's Service selects", "", "it receives the Service's traffic; "+dedicatedNamespace, tryVMPod(func(pod *corev1.Pod) { pod.Labels["app"] = othersName })),
		possible("VM Pod with another user's ReplicaSet as its owner", "", "the ReplicaSet deletes another of its Pods; "+dedicatedNamespace, tryVMPod(func(pod *corev1.Pod) {
			pod.Labels["app"] = othersName
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: othersName, UID: "none", Controller: new(true)}}
		})),
		possible("VM Pod with labels to which another user's NetworkPolicy allows traffic", "NSA/CISA: Network policies", "only policies without a namespace selector are affected", tryVMPod(func(pod *corev1.Pod) { pod.Labels["role"] = "database-client" })),
		possible("VM Pod with annotations for a network plugin", "", "depends on the plugin: networks of Multus, addresses of Calico", tryVMPod(func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "kube-system/host-device"}
		})),
	}
}

// addProjectedVolume adds a projected volume with a name like those generated by Kubernetes.
func addProjectedVolume(source corev1.VolumeProjection) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-more", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}})
	}
}

// addEphemeralVolume adds an ephemeral volume with a changed PVC template.
func addEphemeralVolume(change func(*corev1.PersistentVolumeClaimTemplate)) func(*corev1.Pod) {
	pvc := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(storageClassName), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	change(pvc)
	return addVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: pvc}})
}

func vmVolumes() []Attack {
	volumeAttack := func(kind, gain string, source corev1.VolumeSource) Attack {
		return rejected("volumes", "VM Pod with "+kind, "PSS Restricted: Volume Types", gain, tryVMPod(addVolume(source)))
	}
	pvcAttack := func(rule, property string, change func(*corev1.PersistentVolumeClaimTemplate)) Attack {
		return rejected(rule, "VM Pod with an ephemeral volume "+property, "", "another user's data", tryVMPod(addEphemeralVolume(change)))
	}
	return []Attack{
		volumeAttack("another VM's settings Secret", "its agent's credentials", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}}),
		volumeAttack("an NFS volume", "servers that trust the node's address", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
		volumeAttack("an iSCSI volume", "servers that trust the node's address", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2001-04.com.example:storage", Lun: 0}}),
		volumeAttack("a CSI volume", "what the driver mounts on request, for example Secrets of a vault", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}),
		volumeAttack("a FlexVolume", "a program on the node, with arbitrary options", corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/driver"}}),
		rejected("node-images", "VM Pod with an image volume from another registry", "PSS Restricted: Volume Types", "any program with a VM's privileges", tryVMPod(addVolume(corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: foreignImage}}))),
		rejected("node-images", "VM Pod with another digest of bosh-node", "", "any program with a VM's privileges", tryVMPod(func(pod *corev1.Pod) {
			for _, volume := range pod.Spec.Volumes {
				if volume.Image != nil {
					volume.Image.Reference = otherNodeImage
				}
			}
		})),
		volumeAttack("a downwardAPI volume other than its boot record", "the Pod's labels and annotations, for an injected container", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}),
		volumeAttack("a ConfigMap", "settings of other applications", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}}}),
		pvcAttack("volumes", "that names a PersistentVolume", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.VolumeName = othersName }),
		pvcAttack("volumes", "that selects PersistentVolumes", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": othersName}}
		}),
		pvcAttack("volumes", "with another user's disk as its data source", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: othersName}
		}),
		pvcAttack("storage-class", "with the StorageClass of a static PersistentVolume", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("static") }),
		pvcAttack("storage-class", "with an empty StorageClass name", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("") }),
		pvcAttack("storage-class", "without a StorageClass", func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = nil }),
		pvcAttack("storage-class", "with another StorageClass in its annotation", func(c *corev1.PersistentVolumeClaimTemplate) {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "static"}
		}),
		possible("VM Pod with any PersistentVolumeClaim of the namespace", "", dedicatedNamespace, tryVMPod(addVolume(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: othersName}}))),
	}
}

func vmSidecars() []Attack {
	sidecarAttack := func(rule, property, gain string, container corev1.Container) Attack {
		return rejected(rule, "injected container "+property, "", gain, tryVMPod(addSidecar(container))).withLimit("sidecars", sidecarImage)
	}
	containerWith := func(security corev1.SecurityContext) corev1.Container {
		return corev1.Container{SecurityContext: &security}
	}
	return []Attack{
		sidecarAttack("sidecars", "that is privileged", "root on the node", containerWith(corev1.SecurityContext{Privileged: new(true)})),
		sidecarAttack("sidecars", "with an added capability", "more permissions than a sidecar has", containerWith(withCapabilities("SYS_PTRACE"))),
		sidecarAttack("sidecars", "with the seccomp profile Unconfined", "all system calls", containerWith(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}})),
		sidecarAttack("sidecars", "with the AppArmor profile Unconfined", "less confinement", containerWith(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}})),
		sidecarAttack("sidecars", "with the VM's directory on the node", "the VM's disks", corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}}}),
		sidecarAttack("sidecars", "with the VM's settings", "its agent's credentials", corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}}),
		sidecarAttack("sidecars", "with the image of bosh-node", "a program that is not of its own image", corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "bosh-node", MountPath: api.VolumeDir}}}),
		sidecarAttack("host-ports", "with a host port", "the port of a program on the node", corev1.Container{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}),
		sidecarAttack("probe-host", "with a probe of another host", "requests from the node", corev1.Container{ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}}),
		rejected("images", "injected container with an image from another registry", "", "any program, in the VM's network", tryVMPod(addSidecar(corev1.Container{}))),
		rejected("images", "init container with an image from another registry", "", "any program, in the VM's network", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: foreignImage}}
		})),
	}
}

func vmPlacement() []Attack {
	return []Attack{
		rejected("node-name", "VM Pod with a node name", "", "Pods on cordoned or full nodes, bypassing the scheduler", tryVMPod(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-b" })),
		rejected("node-selector", "VM Pod with tolerations for all nodes, including the control plane", "NSA/CISA: Worker node segmentation", "control plane credentials, with a privileged VM", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		})).rejectedWith("node_selector", "dedicated=bosh"),
		rejected("nodes", "VM Pod with affinity to a node that is not for BOSH", "NSA/CISA: Worker node segmentation", "a node with other users' Pods", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Affinity = nodeAffinityTo("node-b")
		})).rejectedWith("nodes", "node-of-bosh"),
		possible("VM Pod with another scheduler", "", "depends on that scheduler", tryVMPod(func(pod *corev1.Pod) { pod.Spec.SchedulerName = "another" })),
		possible("Pod with a scheduling gate", "", "it never runs, and uses only quota; set a ResourceQuota", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}}
		})),
		possible("VM Pod with requests for all CPU and memory", "NSA/CISA: Resource policies", "set a ResourceQuota and a LimitRange", tryVMPod(withContainer(func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1k"), corev1.ResourceMemory: resource.MustParse("1Ti")}
		}))),
		possible("VM Pod with a grace period of ten years, which blocks the draining of its node", "", "use `kubectl delete --force`; dedicated nodes", tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(315360000))
		})),
	}
}

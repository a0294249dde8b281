package attacks

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

// tryHelperPod returns an attack that creates a changed attachment Pod. All helper Pods have the same structure, and use the node's PID and
// network namespaces.
func tryHelperPod(change func(*corev1.Pod)) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		pod := a.newAttachmentPod()
		change(pod)
		return a.createPod(ctx, pod)
	}
}

func execHandler(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

// nodeAffinityTo returns an affinity that requires this node.
func nodeAffinityTo(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}}
}

const rootOnNode = "root on the node"

func helperCommandAttacks() []Attack {
	commandAttack := func(property, gain string, change func(*corev1.Container)) Attack {
		return rejected("command", "helper Pod "+property, "", gain, tryHelperPod(withContainer(change)))
	}
	withArgument := func(name, value string) func(*corev1.Container) {
		return func(c *corev1.Container) { c.Command[slices.Index(c.Command, name)+1] = value }
	}
	environmentAttack := func(property, gain string, change func(*corev1.Container)) Attack {
		return rejected("environment", "helper Pod "+property, "", gain, tryHelperPod(withContainer(change)))
	}
	return []Attack{
		commandAttack("with a custom command", rootOnNode, func(c *corev1.Container) { c.Command = []string{"/bin/bash", "-c", "cat /proc/1/root/etc/shadow"} }),
		commandAttack("without a command, so that the image's command runs", rootOnNode, func(c *corev1.Container) { c.Command = nil }),
		commandAttack("with a shell after a command of bosh-node", rootOnNode, func(c *corev1.Container) { c.Command = append(c.Command, ";", "id") }),
		commandAttack("that runs the command of another role", "a VM that stops", func(c *corev1.Container) {
			c.Command = []string{c.Command[0], "vm", "stop", "--serve-seconds", "0", "--drain-seconds", "0"}
		}),
		commandAttack("that runs another program of the volume", rootOnNode, func(c *corev1.Container) { c.Command[0] = "/bosh/bin/more" }),
		commandAttack("for a VM of another namespace", "that VM's disks", withArgument("--vm", "elsewhere/agent-other")),
		commandAttack("for a VM of another namespace, in a repeated argument", "that VM's disks", func(c *corev1.Container) {
			c.Command = append(c.Command, "--vm", "elsewhere/agent-other")
		}),
		commandAttack("for a disk with a path as its name", "files on the node", withArgument("--cid", "../../etc")),
		commandAttack("for a disk with arguments in its name", "that VM's disks", withArgument("--cid", diskName+" --vm elsewhere/agent-other")),
		commandAttack("with arguments", "another meaning of the command", func(c *corev1.Container) { c.Args = []string{"more"} }),
		commandAttack("with a working directory", "files of the disk as programs", func(c *corev1.Container) { c.WorkingDir = "/volume" }),
		commandAttack("with a preStop hook", rootOnNode, func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: execHandler("/bin/sh", "-c", "id")}
		}),
		commandAttack("with a postStart hook", rootOnNode, func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: execHandler("/bin/sh", "-c", "id")}
		}),
		commandAttack("with another startup probe", rootOnNode, func(c *corev1.Container) { c.StartupProbe.Exec.Command = []string{"/bin/sh", "-c", "id"} }),
		commandAttack("with the command of bosh-node for another disk as its startup probe", "a disk that only seems to be attached", func(c *corev1.Container) {
			c.StartupProbe.Exec.Command[4] = diskName
		}),
		commandAttack("with the command of bosh-node for another disk as its postStart hook", "a disk that only seems to be attached", func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: execHandler(append(slices.Clone(c.StartupProbe.Exec.Command[:4]), diskName, c.Command[5], c.Command[6])...)}
		}),
		commandAttack("with a liveness probe", rootOnNode, func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		}),
		rejected("command", "reboot Pod for a VM of another namespace", "", "a VM that restarts", func(ctx context.Context, a *Attacker) error {
			pod := manifest.RebootPod(a.existingVM, "", nodeImage).Pod
			withContainer(withArgument("--vm", "elsewhere/agent-other"))(pod)
			return a.createPod(ctx, pod)
		}),
		environmentAttack("with LD_PRELOAD in its environment", rootOnNode, func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/volume/library.so"}}
		}),
		environmentAttack("with PATH in its environment", rootOnNode, func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "PATH", Value: "/volume"}} }),
		environmentAttack("with a variable from a Secret", "a Secret that processes on the node can read", func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "DISK", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}, Key: "disk"}}}}
		}),
		environmentAttack("with a Secret as its environment", "a Secret that processes on the node can read", func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}}}}
		}),
		possible("helper Pod that reboots a VM", "", "required by reboot_vm", func(ctx context.Context, a *Attacker) error {
			return a.createPod(ctx, manifest.RebootPod(a.existingVM, "", nodeImage).Pod)
		}),
	}
}

func helperPodSpecAttacks() []Attack {
	withDiskMountedAt := func(path string) func(*corev1.Container) {
		return func(c *corev1.Container) {
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
			for i := range c.VolumeMounts {
				if c.VolumeMounts[i].Name == "disk" {
					c.VolumeMounts[i].MountPath = path
				}
			}
		}
	}
	return []Attack{
		rejected("host-path", "helper Pod with the node's root directory", "PSS Baseline: HostPath Volumes", "a helper Pod with access to files on the node", tryHelperPod(addHostPath("/"))),
		rejected("host-path", "helper Pod with the directory of another director's VM", "", "that VM's disks", tryHelperPod(func(pod *corev1.Pod) {
			for _, volume := range pod.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = "/run/bosh-kubernetes-cpi/elsewhere/agent-other"
				}
			}
		})),
		rejected("host-namespaces", "helper Pod in the node's IPC namespace", "PSS Baseline: Host Namespaces", "shared memory of the node's programs", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.HostIPC = true })),
		rejected("mounts", "helper Pod with its disk mounted over programs", "", rootOnNode, tryHelperPod(withContainer(withDiskMountedAt("/bin")))),
		rejected("mounts", "helper Pod with its disk mounted instead of its marker files", "", "an unformatted disk that counts as formatted", tryHelperPod(withContainer(withDiskMountedAt("/markers")))),
		rejected("mounts", "helper Pod with a subpath of its disk", "", "symbolic links on the disk, which the kubelet follows", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeMounts[1].SubPath = "etc" // of the disk
		}))),
		rejected("mounts", "helper Pod with a device at another path", "", "one disk presented as another", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeDevices, c.VolumeMounts = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/sda"}}, slices.Delete(c.VolumeMounts, 1, 2)
		}))),
		rejected("volumes", "helper Pod with a Secret", "", "a Secret that processes on the node can read", tryHelperPod(addVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}}))),
		rejected("volumes", "helper Pod with a ConfigMap", "", "arbitrary files", tryHelperPod(addVolume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "bosh-cpi-limits"}}}))),
		rejected("security-context", "helper Pod with the SELinux type init_t", "PSS Baseline: SELinux", "more permissions than a privileged container's type", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "init_t"}
		}))),
		rejected("security-context", "helper Pod with a Windows HostProcess container", "PSS Baseline: HostProcess", "administrator permissions on a Windows node", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}}
			pod.Spec.Containers[0].SecurityContext = nil
			pod.Spec.Containers[0].Lifecycle = nil
		})),
		rejected("sidecars", "helper Pod with a sidecar that mounts the disk", "", "a sidecar that can read the disk", tryHelperPod(addSidecar(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}}))).
			withLimit("sidecars", sidecarImage),
		rejected("sidecars", "helper Pod with an init container under the name of the CPI's container", "", rootOnNode, tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "vm", Image: stemcellImage, Command: []string{"/bin/sh", "-c", "id"}}}
		})),
		possible("helper Pod with an injected container that uses the node's network", "", "list no images in `sidecars`; service meshes skip Pods in the node's network", tryHelperPod(addSidecar(corev1.Container{
			Command: []string{"/bin/sh", "-c", "id"}}))).withLimit("sidecars", sidecarImage),
		rejected("containers|images", "helper Pod without the CPI's container", "", rootOnNode, tryHelperPod(withContainer(func(c *corev1.Container) { c.Name = "more" }))),
		rejected("service-account", "helper Pod with a service account", "NSA/CISA: Protecting Pod service account tokens", "a token that processes on the node can read", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" })),
		rejected("priority-class", "helper Pod with a system priority class", "", "preemption of other Pods", tryHelperPod(func(pod *corev1.Pod) { withPriorityClass(pod, "system-cluster-critical") })),
		rejected("priority-class", "helper Pod other than an attachment Pod with the priority class of attachment Pods", "", "preemption of other Pods", func(ctx context.Context, a *Attacker) error {
			return a.createPod(ctx, withPriorityClass(manifest.RebootPod(a.existingVM, "", nodeImage).Pod, manifest.AttachmentPriorityClass))
		}),
		rejected("node-name", "helper Pod with a node name", "", "a helper Pod with access to the processes of any node", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Spec.SchedulingGates = "node-b", nil
		})),
		rejected("nodes", "helper Pod with affinity to a node that is not for BOSH", "NSA/CISA: Worker node segmentation", "a helper Pod with access to that node's processes", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.Affinity = nodeAffinityTo("node-b")
		})).rejectedWith("nodes", "node-of-bosh"),
		rejected("helper-nodes", "helper Pod without affinity to a node", "NSA/CISA: Worker node segmentation", "a helper Pod with access to the processes of any node", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.Affinity = nil })).
			rejectedWith("nodes", "node-of-bosh"),
	}
}

func withPriorityClass(pod *corev1.Pod, name string) *corev1.Pod {
	pod.Spec.PriorityClassName = name
	return pod
}

func exclusivityCheckAttacks() []Attack {
	checkAttack := func(rules, property, gain string, change func(*corev1.EphemeralContainer)) Attack {
		return rejected(rules, "ephemeral container of an attachment Pod with "+property, "RBAC: ephemeral containers", gain, func(ctx context.Context, a *Attacker) error {
			container := manifest.ExclusivityCheckContainer(a.existingAttachment, nodeImage)
			change(&container)
			return a.addEphemeralContainer(ctx, a.existingAttachment.Name, container)
		})
	}
	return []Attack{
		checkAttack("node-images", "an image from another registry", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = foreignImage }),
		checkAttack("node-images", "an image that `images` admits", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = otherStemcell }),
		checkAttack("node-images", "another digest of bosh-node", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = otherNodeImage }),
		checkAttack("command", "a custom command", rootOnNode, func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/bash", "-c", "id"} }),
		checkAttack("command", "the command of an attachment", "two programs for one disk", func(c *corev1.EphemeralContainer) { c.Command[2] = api.Idle }),
		checkAttack("exclusivity-check", "a different target container", "access to the processes of the attachment", func(c *corev1.EphemeralContainer) { c.TargetContainerName = "attach" }),
		checkAttack("environment", "PATH in its environment", rootOnNode, func(c *corev1.EphemeralContainer) {
			c.Env = []corev1.EnvVar{{Name: "PATH", Value: "/volume"}}
		}),
		checkAttack("security-context", "an SELinux type", "more permissions than a privileged container's type", func(c *corev1.EphemeralContainer) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), SELinuxOptions: &corev1.SELinuxOptions{Type: "init_t"}}
		}),
		checkAttack("exclusivity-check", "another name", rootOnNode, func(c *corev1.EphemeralContainer) { c.Name = "debug" }),
		rejected("unchanged", "ephemeral container of a VM Pod", "RBAC: ephemeral containers", "the VM's processes", func(ctx context.Context, a *Attacker) error {
			container := manifest.ExclusivityCheckContainer(a.existingAttachment, nodeImage)
			container.VolumeMounts = nil
			return a.addEphemeralContainer(ctx, a.existingVM.Name, container)
		}),
		rejected("labels|containers|unchanged", "ephemeral container of another user's Pod", "RBAC: ephemeral containers", "the permissions of that Pod", func(ctx context.Context, a *Attacker) error {
			container := manifest.ExclusivityCheckContainer(a.existingAttachment, nodeImage)
			container.VolumeMounts = nil
			return a.addEphemeralContainer(ctx, othersName, container)
		}),
	}
}

// podUpdateAttacks returns attacks that change existing Pods and PodTemplates, or create a PodTemplate.
func podUpdateAttacks() []Attack {
	vmPodPatchAttack := func(rules, name, gain string, patch map[string]any) Attack {
		return rejected(rules, name, "", gain, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "pods", a.existingVM.Name, patch)
		})
	}
	labels := func(key string, value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
	}
	templateAttack := func(rules, property, gain string, change func(*corev1.PodSpec)) Attack {
		return rejected(rules, "PodTemplate "+property, "", gain, func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			change(&podTemplate.Template.Spec)
			return a.createTemplate(ctx, podTemplate)
		})
	}
	return []Attack{
		rejected("unchanged", "replacing the image of a running VM Pod", "", "any program with access to the VM's disks", func(ctx context.Context, a *Attacker) error {
			patch := []byte(`{"spec": {"containers": [{"name": "vm", "image": "` + otherStemcell + `"}]}}`)
			_, err := a.Client.CoreV1().Pods(a.Namespace).Patch(ctx, a.existingVM.Name, types.StrategicMergePatchType, patch, dryPatch)
			return err
		}),
		vmPodPatchAttack("labels|containers|command|object-labels", "turning a VM Pod into an attachment Pod", "a Pod to which fewer rules apply", labels(manifest.LabelRole, manifest.RoleAttachment)),
		vmPodPatchAttack("labels|object-labels", "removing the CPI's label from a VM Pod", "a Pod to which no other rule applies", labels(manifest.LabelManagedBy, nil)),
		vmPodPatchAttack("vm-directory|host-path", "changing the VM's name in the label of a VM Pod", "attachment Pods with access to another VM's directory", labels(manifest.LabelVM, "agent-other")),
		templateAttack("host-path", "with the node's root directory", rootOnNode, func(spec *corev1.PodSpec) {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		templateAttack("images", "with an image from another registry", "any program with a VM's privileges", func(spec *corev1.PodSpec) { spec.Containers[0].Image = foreignImage }),
		templateAttack("storage-class", "with an ephemeral volume with the StorageClass of a static PersistentVolume", "another user's data", func(spec *corev1.PodSpec) {
			var pod corev1.Pod
			addEphemeralVolume(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("static") })(&pod)
			spec.Volumes = append(spec.Volumes, pod.Spec.Volumes...)
		}),
		rejected("node-name", "setting a node name in a PodTemplate", "", "Pods on cordoned or full nodes, bypassing the scheduler", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "podtemplates", "agent-three", map[string]any{"template": map[string]any{"spec": map[string]any{"nodeName": "node-b"}}})
		}),
		rejected("priority-class", "setting a system priority class in a PodTemplate", "", "preemption of other Pods", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "podtemplates", "agent-three", map[string]any{"template": map[string]any{"spec": map[string]any{"priorityClassName": "system-node-critical"}}})
		}),
		rejected("labels", "PodTemplate of helper Pods", "", "a Pod to which fewer rules apply", func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			pod := a.newAttachmentPod()
			podTemplate.Template.Labels, podTemplate.Template.Spec = pod.Labels, pod.Spec
			podTemplate.Template.Spec.HostNetwork, podTemplate.Template.Spec.HostPID, podTemplate.Template.Spec.PriorityClassName = false, false, ""
			return a.createTemplate(ctx, podTemplate)
		}),
	}
}

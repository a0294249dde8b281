package attacks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
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

func addVariable(name, value string) func(*corev1.Pod) {
	return withContainer(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value}) })
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
	commandAttack := func(property string, change func(*corev1.Container)) Attack {
		return rejected("command", "helper Pod "+property, "", rootOnNode, tryHelperPod(withContainer(change)))
	}
	environmentAttack := func(property string, change func(*corev1.Pod)) Attack {
		return rejected("environment", "helper Pod "+property, "", rootOnNode, tryHelperPod(change))
	}
	return []Attack{
		commandAttack("with a custom command", func(c *corev1.Container) {
			c.Command = []string{"/bin/bash", "-c", "cat /proc/1/root/etc/shadow", "attach"}
		}),
		commandAttack("without a command, so that the image's command runs", func(c *corev1.Container) { c.Command = nil }),
		commandAttack("that runs one CPI program under the name of another", func(c *corev1.Container) { c.Command[3] = "reboot" }),
		commandAttack("with arguments", func(c *corev1.Container) { c.Args = []string{"more"} }),
		commandAttack("with a working directory", func(c *corev1.Container) { c.WorkingDir = "/volume" }),
		commandAttack("with a preStop hook", func(c *corev1.Container) { c.Lifecycle.PreStop = execHandler("/bin/sh", "-c", "id") }),
		commandAttack("with another postStart hook", func(c *corev1.Container) { c.Lifecycle.PostStart = execHandler("/bin/sh", "-c", "id") }),
		commandAttack("with a liveness probe", func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		}),
		environmentAttack("with BASH_ENV in its environment", addVariable("BASH_ENV", "/volume/program")),
		environmentAttack("with a bash function in its environment", addVariable("BASH_FUNC_mount%%", "() { id; }")),
		environmentAttack("with LD_PRELOAD in its environment", addVariable("LD_PRELOAD", "/volume/library.so")),
		environmentAttack("with PATH in its environment", addVariable("PATH", "/volume")),
		environmentAttack("for a VM of another namespace", withContainer(func(c *corev1.Container) {
			for i, variable := range c.Env {
				if variable.Name == "VM" {
					c.Env[i].Value = "elsewhere/agent-other"
				}
			}
		})),
		environmentAttack("for a disk with a path as its name", withContainer(func(c *corev1.Container) { c.Env[0].Value = "../../etc" })),
		environmentAttack("with a variable from a Secret", withContainer(func(c *corev1.Container) {
			c.Env[0] = corev1.EnvVar{Name: "DISK", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}, Key: "disk"}}}
		})),
		environmentAttack("with a Secret as its environment", withContainer(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: othersName}}}}
		})),
		rejected("images", "helper Pod with an image from another registry", "", rootOnNode, tryHelperPod(withContainer(func(c *corev1.Container) { c.Image = "docker.io/library/debian:13" }))),
		possible("helper Pod with any image allowed by `images`, which then provides the shell", "", "let only your pipeline push there", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.Image = "registry.example.com/stemcells/other:latest"
		}))),
		possible("helper Pod that reboots a VM", "", "required by reboot_vm", func(ctx context.Context, a *Attacker) error {
			return a.createPod(ctx, manifest.RebootPod(a.existingVM, "").Pod)
		}),
	}
}

func helperPodSpecAttacks() []Attack {
	withDiskMountedAt := func(path string) func(*corev1.Container) {
		return func(c *corev1.Container) {
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
		rejected("mounts", "helper Pod with its disk mounted over its marker files", "", "an unformatted disk that counts as formatted", tryHelperPod(withContainer(withDiskMountedAt("/markers")))),
		rejected("mounts", "helper Pod with a subpath of its disk", "", "symbolic links on the disk, which the kubelet follows", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeMounts[len(c.VolumeMounts)-1].SubPath = "etc"
		}))),
		rejected("mounts", "helper Pod with a device at another path", "", "one disk presented as another", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeDevices, c.VolumeMounts = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/sda"}}, c.VolumeMounts[:1]
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
			return a.createPod(ctx, withPriorityClass(manifest.RebootPod(a.existingVM, "").Pod, manifest.AttachmentPriorityClass))
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
			container := manifest.ExclusivityCheckContainer(a.existingAttachment)
			change(&container)
			return a.addEphemeralContainer(ctx, a.existingAttachment.Name, container)
		})
	}
	return []Attack{
		checkAttack("exclusivity-check|images", "an image from another registry", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = "docker.io/library/debian:13" }),
		checkAttack("exclusivity-check", "another image that `images` admits", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = "registry.example.com/stemcells/other:latest" }),
		checkAttack("command", "a custom command", rootOnNode, func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/bash", "-c", "id", "exclusivity-check"} }),
		checkAttack("exclusivity-check", "another program of the CPI", "two programs for one disk", func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/sync"} }),
		checkAttack("exclusivity-check", "a different target container", "access to the processes of the attachment", func(c *corev1.EphemeralContainer) { c.TargetContainerName = "attach" }),
		checkAttack("environment", "BASH_ENV in its environment", rootOnNode, func(c *corev1.EphemeralContainer) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "BASH_ENV", Value: "/volume/program"})
		}),
		checkAttack("security-context", "an SELinux type", "more permissions than a privileged container's type", func(c *corev1.EphemeralContainer) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), SELinuxOptions: &corev1.SELinuxOptions{Type: "init_t"}}
		}),
		checkAttack("exclusivity-check|images", "another name", rootOnNode, func(c *corev1.EphemeralContainer) { c.Name = "debug" }),
		rejected("unchanged", "ephemeral container of a VM Pod", "RBAC: ephemeral containers", "the VM's processes", func(ctx context.Context, a *Attacker) error {
			container := manifest.ExclusivityCheckContainer(a.existingAttachment)
			container.VolumeMounts = nil
			return a.addEphemeralContainer(ctx, a.existingVM.Name, container)
		}),
		rejected("labels|containers|unchanged", "ephemeral container of another user's Pod", "RBAC: ephemeral containers", "the permissions of that Pod", func(ctx context.Context, a *Attacker) error {
			container := manifest.ExclusivityCheckContainer(a.existingAttachment)
			container.VolumeMounts, container.Env = nil, nil
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
			patch := []byte(`{"spec": {"containers": [{"name": "vm", "image": "registry.example.com/stemcells/other:latest"}]}}`)
			_, err := a.Client.CoreV1().Pods(a.Namespace).Patch(ctx, a.existingVM.Name, types.StrategicMergePatchType, patch, dryPatch)
			return err
		}),
		vmPodPatchAttack("labels|containers|command|object-labels", "turning a VM Pod into an attachment Pod", "a Pod to which fewer rules apply", labels(manifest.LabelRole, manifest.RoleAttachment)),
		vmPodPatchAttack("labels|object-labels", "removing the CPI's label from a VM Pod", "a Pod to which no other rule applies", labels(manifest.LabelManagedBy, nil)),
		vmPodPatchAttack("vm-directory|host-path", "changing the VM's name in the label of a VM Pod", "attachment Pods with access to another VM's directory", labels(manifest.LabelVM, "agent-other")),
		templateAttack("host-path", "with the node's root directory", rootOnNode, func(spec *corev1.PodSpec) {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		templateAttack("images", "with an image from another registry", "any program with a VM's privileges", func(spec *corev1.PodSpec) { spec.Containers[0].Image = "docker.io/library/debian:13" }),
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

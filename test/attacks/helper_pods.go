package attacks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube/manifest"
)

// tryHelperPod tries to make an attachment Pod with a change. All helper Pods are of the same form, and have the node's processes and
// network.
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

// nodeAffinityTo asks for a node by its name.
func nodeAffinityTo(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}}
}

const rootOnNode = "root on the node"

func helperPrograms() []Attack {
	program := func(what string, change func(*corev1.Container)) Attack {
		return refused("command", "helper Pod "+what, "", rootOnNode, tryHelperPod(withContainer(change)))
	}
	variable := func(what string, change func(*corev1.Pod)) Attack {
		return refused("environment", "helper Pod "+what, "", rootOnNode, tryHelperPod(change))
	}
	return []Attack{
		program("with a command of its own", func(c *corev1.Container) {
			c.Command = []string{"/bin/bash", "-c", "cat /proc/1/root/etc/shadow", "hold"}
		}),
		program("without a command, so that the image's runs", func(c *corev1.Container) { c.Command = nil }),
		program("with one of the CPI's programs under another's name", func(c *corev1.Container) { c.Command[3] = "copy" }),
		program("with arguments", func(c *corev1.Container) { c.Args = []string{"more"} }),
		program("in a folder of choice", func(c *corev1.Container) { c.WorkingDir = "/volume" }),
		program("with a hook before its end", func(c *corev1.Container) { c.Lifecycle.PreStop = execHandler("/bin/sh", "-c", "id") }),
		program("with another hook after its start", func(c *corev1.Container) { c.Lifecycle.PostStart = execHandler("/bin/sh", "-c", "id") }),
		program("with a liveness probe", func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		}),
		variable("whose bash runs BASH_ENV", addVariable("BASH_ENV", "/volume/program")),
		variable("whose bash takes functions from its environment", addVariable("BASH_FUNC_mount%%", "() { id; }")),
		variable("that loads a library", addVariable("LD_PRELOAD", "/volume/library.so")),
		variable("with another PATH", addVariable("PATH", "/volume")),
		variable("for a VM of another namespace", withContainer(func(c *corev1.Container) {
			for i, variable := range c.Env {
				if variable.Name == "VM" {
					c.Env[i].Value = "elsewhere/agent-other"
				}
			}
		})),
		variable("of a disk with a path for its name", withContainer(func(c *corev1.Container) { c.Env[0].Value = "../../etc" })),
		variable("with a value from a Secret", withContainer(func(c *corev1.Container) {
			c.Env[0] = corev1.EnvVar{Name: "DISK", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: foreignName}, Key: "disk"}}}
		})),
		variable("with a Secret for its environment", withContainer(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: foreignName}}}}
		})),
		refused("images", "helper Pod of an image from elsewhere", "", rootOnNode, tryHelperPod(withContainer(func(c *corev1.Container) { c.Image = "docker.io/library/debian:13" }))),
		listed("helper Pod of any image that `images` admits, with its own bash", "", "let only your pipeline push there", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.Image = "registry.example.com/stemcells/other:latest"
		}))),
		listed("helper Pod that reboots a VM", "", "the CPI's work: reboot_vm", func(ctx context.Context, a *Attacker) error {
			return a.createPod(ctx, manifest.RebootPod(a.existingVM, ""))
		}),
	}
}

func helperPodSpecs() []Attack {
	mounted := func(path string) func(*corev1.Container) {
		return func(c *corev1.Container) {
			for i := range c.VolumeMounts {
				if c.VolumeMounts[i].Name == "disk" {
					c.VolumeMounts[i].MountPath = path
				}
			}
		}
	}
	return []Attack{
		refused("host-path", "helper Pod with the root of its node", "PSS Baseline: HostPath Volumes", "files of the node, for the CPI's program", tryHelperPod(addHostPath("/"))),
		refused("host-path", "helper Pod with the folder of a VM of another director", "", "that VM's disks", tryHelperPod(func(pod *corev1.Pod) {
			for _, volume := range pod.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = "/run/bosh-kubernetes-cpi/elsewhere/agent-other"
				}
			}
		})),
		refused("host-namespaces", "helper Pod with the IPC of its node", "PSS Baseline: Host Namespaces", "shared memory of the node's programs", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.HostIPC = true })),
		refused("mounts", "helper Pod with its disk in the place of programs", "", rootOnNode, tryHelperPod(withContainer(mounted("/bin")))),
		refused("mounts", "helper Pod with its disk in the place of its own notes", "", "a disk that was never formatted is taken for one that was", tryHelperPod(withContainer(mounted("/marks")))),
		refused("mounts", "helper Pod with a part of its disk", "", "symbolic links of the disk, followed by the kubelet", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeMounts[len(c.VolumeMounts)-1].SubPath = "etc"
		}))),
		refused("mounts", "helper Pod with a device in another place", "", "a disk in the place of another", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/sda"}}
			c.VolumeMounts = c.VolumeMounts[:1]
		}))),
		refused("volumes", "helper Pod with a Secret", "", "a Secret, for the node's processes", tryHelperPod(addVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}}))),
		refused("volumes", "helper Pod with a ConfigMap", "", "files of choice", tryHelperPod(addVolume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "bosh-cpi-limits"}}}))),
		refused("security-context", "helper Pod with the SELinux type of an init", "PSS Baseline: SELinux", "more than a privileged container's type", tryHelperPod(withContainer(func(c *corev1.Container) {
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "init_t"}
		}))),
		refused("security-context", "helper Pod that is a process of a Windows node", "PSS Baseline: HostProcess", "rights of that node's administrator", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}}
			pod.Spec.Containers[0].SecurityContext = nil
			pod.Spec.Containers[0].Lifecycle = nil
		})),
		refused("sidecars", "helper Pod with a container that sees the disk", "", "the disk, for a sidecar's program", tryHelperPod(addSidecar(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}}))).
			withLimit("sidecars", sidecarImage),
		refused("sidecars", "helper Pod with an init container that has the CPI's name", "", rootOnNode, tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "machine", Image: stemcellImage, Command: []string{"/bin/sh", "-c", "id"}}}
		})),
		listed("helper Pod with an injected container, which has the node's network", "", "list no image in `sidecars`: meshes leave helper Pods alone", tryHelperPod(addSidecar(corev1.Container{
			Command: []string{"/bin/sh", "-c", "id"}}))).withLimit("sidecars", sidecarImage),
		refused("containers|images", "helper Pod without the CPI's container", "", rootOnNode, tryHelperPod(withContainer(func(c *corev1.Container) { c.Name = "more" }))),
		refused("service-account", "helper Pod with a service account", "NSA/CISA: Protecting Pod service account tokens", "the token, on the node", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" })),
		refused("priority-class", "helper Pod before all others on its node", "", "others' Pods are pushed off nodes", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-cluster-critical" })),
		refused("node-name", "helper Pod on a node of choice, past the scheduler", "", "the node's processes, for the CPI's program", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Spec.SchedulingGates = "node-b", nil
		})),
		refused("nodes", "helper Pod on a node of somebody else", "NSA/CISA: Worker node segmentation", "the node's processes, for the CPI's program", tryHelperPod(func(pod *corev1.Pod) {
			pod.Spec.Affinity = nodeAffinityTo("node-b")
		})).refusedWith("nodes", "node-of-bosh"),
		refused("helper-nodes", "helper Pod on any node", "NSA/CISA: Worker node segmentation", "the node's processes, for the CPI's program", tryHelperPod(func(pod *corev1.Pod) { pod.Spec.Affinity = nil })).
			refusedWith("nodes", "node-of-bosh"),
	}
}

func exclusivityChecks() []Attack {
	checkAttack := func(rules, what, why string, change func(*corev1.EphemeralContainer)) Attack {
		return refused(rules, "ephemeral container "+what, "RBAC: ephemeral containers", why, func(ctx context.Context, a *Attacker) error {
			container := manifest.ReleaseContainer(a.existingAttachment)
			change(&container)
			return a.addEphemeralContainer(ctx, a.existingAttachment.Name, container)
		})
	}
	return []Attack{
		checkAttack("proof|images", "of an image from elsewhere in an attachment Pod", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = "docker.io/library/debian:13" }),
		checkAttack("proof", "of another image that `images` admits in an attachment Pod", rootOnNode, func(c *corev1.EphemeralContainer) { c.Image = "registry.example.com/stemcells/other:latest" }),
		checkAttack("command", "with a command of its own in an attachment Pod", rootOnNode, func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/bash", "-c", "id", "release"} }),
		checkAttack("proof", "with another program of the CPI in an attachment Pod", "two programs for one disk", func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/sync"} }),
		checkAttack("proof", "in the processes of another container", "the attachment's program", func(c *corev1.EphemeralContainer) { c.TargetContainerName = "hold" }),
		checkAttack("environment", "with BASH_ENV in an attachment Pod", rootOnNode, func(c *corev1.EphemeralContainer) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "BASH_ENV", Value: "/volume/program"})
		}),
		checkAttack("security-context", "with an SELinux type in an attachment Pod", "more than a privileged container's type", func(c *corev1.EphemeralContainer) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), SELinuxOptions: &corev1.SELinuxOptions{Type: "init_t"}}
		}),
		checkAttack("proof|images", "with another name in an attachment Pod", rootOnNode, func(c *corev1.EphemeralContainer) { c.Name = "debug" }),
		refused("unchanged", "ephemeral container in a VM Pod", "RBAC: ephemeral containers", "the VM's processes", func(ctx context.Context, a *Attacker) error {
			container := manifest.ReleaseContainer(a.existingAttachment)
			container.VolumeMounts = nil
			return a.addEphemeralContainer(ctx, a.existingVM.Name, container)
		}),
		refused("labels|containers|unchanged", "ephemeral container in a foreign Pod", "RBAC: ephemeral containers", "what that Pod may", func(ctx context.Context, a *Attacker) error {
			container := manifest.ReleaseContainer(a.existingAttachment)
			container.VolumeMounts, container.Env = nil, nil
			return a.addEphemeralContainer(ctx, foreignName, container)
		}),
	}
}

// podChanges are those of Pods and templates that exist.
func podChanges() []Attack {
	change := func(rules, what, why string, patch map[string]any) Attack {
		return refused(rules, what, "", why, func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "pods", a.existingVM.Name, patch)
		})
	}
	labels := func(key string, value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
	}
	templateAttack := func(rules, what, why string, change func(*corev1.PodSpec)) Attack {
		return refused(rules, "PodTemplate "+what, "", why, func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			change(&podTemplate.Template.Spec)
			return a.createTemplate(ctx, podTemplate)
		})
	}
	return []Attack{
		refused("unchanged", "another image for a VM Pod that runs", "", "any program, with the VM's disks", func(ctx context.Context, a *Attacker) error {
			patch := []byte(`{"spec": {"containers": [{"name": "machine", "image": "registry.example.com/stemcells/other:latest"}]}}`)
			_, err := a.Client.CoreV1().Pods(a.Namespace).Patch(ctx, a.existingVM.Name, types.StrategicMergePatchType, patch, dryPatch)
			return err
		}),
		change("labels|containers|command|object-labels", "VM Pod that becomes an attachment Pod", "a Pod to which fewer rules apply", labels(manifest.LabelRole, manifest.RoleAttachment)),
		change("labels|object-labels", "VM Pod that loses the CPI's label", "a Pod to which no other rule applies", labels(manifest.LabelManagedBy, nil)),
		change("own-folder|host-path", "VM Pod that gets another VM's name", "that VM's folder, for its attachment Pods", labels(manifest.LabelVM, "agent-other")),
		templateAttack("host-path", "with the root of its node", rootOnNode, func(spec *corev1.PodSpec) {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		templateAttack("images", "of an image from elsewhere", "any program, with a VM's privileges", func(spec *corev1.PodSpec) { spec.Containers[0].Image = "docker.io/library/debian:13" }),
		templateAttack("storage-class", "with an ephemeral volume of the class of a static PersistentVolume", "somebody else's data", func(spec *corev1.PodSpec) {
			var pod corev1.Pod
			addEphemeralVolume(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("static") })(&pod)
			spec.Volumes = append(spec.Volumes, pod.Spec.Volumes...)
		}),
		refused("node-name", "PodTemplate that gets a node of choice", "", "cordoned and full nodes", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "podtemplates", "agent-three", map[string]any{"template": map[string]any{"spec": map[string]any{"nodeName": "node-b"}}})
		}),
		refused("priority-class", "PodTemplate that gets a priority before all others", "", "others' Pods are pushed off nodes", func(ctx context.Context, a *Attacker) error {
			return a.patchObject(ctx, "podtemplates", "agent-three", map[string]any{"template": map[string]any{"spec": map[string]any{"priorityClassName": "system-node-critical"}}})
		}),
		refused("labels", "PodTemplate of helper Pods", "", "a Pod to which fewer rules apply", func(ctx context.Context, a *Attacker) error {
			podTemplate := newPodTemplate(a.Namespace, "agent-two")
			pod := a.newAttachmentPod()
			podTemplate.Template.Labels, podTemplate.Template.Spec = pod.Labels, pod.Spec
			podTemplate.Template.Spec.HostNetwork, podTemplate.Template.Spec.HostPID = false, false
			return a.createTemplate(ctx, podTemplate)
		}),
	}
}

// tryDaemonSet tries to make a DaemonSet as create_stemcell does, with a change of its Pods.
func tryDaemonSet(change func(*corev1.PodTemplateSpec)) TryFunc {
	return func(ctx context.Context, a *Attacker) error { return a.createDaemonSet(ctx, change) }
}

func daemonSets() []Attack {
	const everywhere = "the program, on every node and each that joins"
	container := func(what string, change func(*corev1.Container)) Attack {
		return refused("prefetch", "DaemonSet "+what, "RBAC: workload creation", everywhere, tryDaemonSet(func(pod *corev1.PodTemplateSpec) { change(&pod.Spec.Containers[0]) }))
	}
	pod := func(rules, what, why string, change func(*corev1.PodTemplateSpec)) Attack {
		return refused(rules, "DaemonSet "+what, "RBAC: workload creation", why, tryDaemonSet(change))
	}
	return []Attack{
		container("that runs another program", func(c *corev1.Container) { c.Command = []string{"/bin/sh", "-c", "id"} }),
		container("with privileges", func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} }),
		container("that runs as root", func(c *corev1.Container) {
			c.SecurityContext.RunAsNonRoot, c.SecurityContext.RunAsUser = new(false), new(int64(0))
		}),
		container("with a capability", func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_PTRACE"} }),
		container("with a liveness probe", func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		}),
		container("with a variable", func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/library.so"}} }),
		pod("host-path|prefetch", "with the root of its node", rootOnNode, func(pod *corev1.PodTemplateSpec) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}),
		pod("prefetch", "with a PersistentVolumeClaim", "a disk, on every node", func(pod *corev1.PodTemplateSpec) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: foreignName}}}}
		}),
		pod("storage-class|volumes|prefetch", "with an ephemeral volume of the class of a static PersistentVolume", "somebody else's data", func(pod *corev1.PodTemplateSpec) {
			var from corev1.Pod
			addEphemeralVolume(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("static") })(&from)
			pod.Spec.Volumes = from.Spec.Volumes
		}),
		pod("host-namespaces", "with the processes of its node", rootOnNode, func(pod *corev1.PodTemplateSpec) { pod.Spec.HostPID = true }),
		pod("prefetch", "with an init container", everywhere, func(pod *corev1.PodTemplateSpec) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "more", Image: sidecarImage}}
		}).withLimit("sidecars", sidecarImage),
		pod("labels|own-folder", "of VM Pods", "VMs past create_vm, on every node", func(pod *corev1.PodTemplateSpec) {
			pod.Labels[manifest.LabelRole] = manifest.RoleVM
			pod.Spec.Containers[0].Name = "machine"
		}),
		pod("images", "of an image from elsewhere", everywhere, func(pod *corev1.PodTemplateSpec) { pod.Spec.Containers[0].Image = "docker.io/library/debian:13" }),
		pod("service-account", "with a service account", "the token, on every node", func(pod *corev1.PodTemplateSpec) { pod.Spec.ServiceAccountName = "bosh-cpi" }),
		pod("priority-class", "before all others on its nodes", "others' Pods are pushed off all nodes", func(pod *corev1.PodTemplateSpec) { pod.Spec.PriorityClassName = "system-node-critical" }),
		pod("node-selector", "on all nodes", "the image, on nodes that BOSH does not use", func(*corev1.PodTemplateSpec) {}).refusedWith("node_selector", "dedicated=bosh"),
		refused("labels", "Pod that pulls an image, without its DaemonSet", "", "a Pod to which fewer rules apply", func(ctx context.Context, a *Attacker) error {
			set, err := a.newPrefetchDaemonSet()
			if err != nil {
				return err
			}
			meta := metav1.ObjectMeta{Name: "prefetch-two", Labels: set.Spec.Template.Labels}
			return a.createPod(ctx, &corev1.Pod{ObjectMeta: meta, Spec: set.Spec.Template.Spec})
		}),
	}
}

package integration

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func attempts() []attempt {
	return slices.Concat(attemptsWithMachines(), attemptsWithChanges(), attemptsWithAttachments(), attemptsWithProofs(), attemptsWithObjects(),
		attemptsWithDaemonSets())
}

func attemptsWithMachines() []attempt {
	return []attempt{
		onMachine("with the node's root", "host-path", hostPath("/")),
		onMachine("with the kubelet's folder", "host-path", hostPath("/var/lib/kubelet")),
		onMachine("with the node's /etc", "host-path", hostPath("/etc")),
		onMachine("with the container runtime's socket", "host-path", hostPath("/run/containerd")),
		onMachine("with all machines' folders", "host-path", hostPath("/run/bosh-kubernetes-cpi")),
		onMachine("with its node's lxcfs to write to, and so with cgroups of others", "host-path", func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "lxcfs", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/lxcfs"}}})
			container := &pod.Spec.Containers[0]
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "lxcfs", MountPath: "/bosh/lxcfs"})
		}),
		onMachine("with another machine's folder", "host-path", hostPath("/run/bosh-kubernetes-cpi/elsewhere/agent-other")),
		onMachine("called after another one, with its folder", "own-folder", func(pod *corev1.Pod) {
			pod.Labels["bosh.cloudfoundry.org/vm"] = "agent-one"
			for _, volume := range pod.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = strings.Replace(volume.HostPath.Path, "agent-two", "agent-one", 1)
				}
			}
		}),
		onMachine("with the node's processes", "host-namespaces", func(pod *corev1.Pod) { pod.Spec.HostPID = true }),
		onMachine("with the node's network", "host-namespaces", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }),
		onMachine("with the node's IPC", "host-namespaces", func(pod *corev1.Pod) { pod.Spec.HostIPC = true }),
		onMachine("with a port of the node", "host-ports", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}),
		onMachine("put on a node past the scheduler", "node-name", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-b" }),
		onMachine("of an image from elsewhere", "images", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "docker.io/library/debian:13" }),
		onMachine("of an image whose registry only begins like ours", "images", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Image = "registry.example.com.evil.example/stemcell:1"
		}),
		onMachine("with a service account", "service-account", func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" }),
		onMachine("with a token of the default one", "service-account", func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(true) }),
		onMachine("with a projected token", "volumes|service-account", volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}}}}})),
		onMachine("with another's Secret", "volumes", volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}})),
		onMachine("with a Secret in a projected volume", "volumes|service-account", func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-more", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "others"}}}}}}})
		}),
		onMachine("whose storage is a volume that is there", "volumes", volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "others",
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}})),
		onMachine("with an NFS server's export", "volumes", volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}})),
		onMachine("before all others on any node", "priority-class", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-node-critical" }),
		onMachine("beside a privileged container", "sidecars", sidecar(corev1.Container{SecurityContext: privileged})),
		onMachine("beside a container of an image from elsewhere", "images", sidecar(corev1.Container{Image: "docker.io/library/debian:13"})),
		onMachine("after a container of an image from elsewhere", "images", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "docker.io/library/debian:13"}}
		}),
		onMachine("without the CPI's labels", "labels", func(pod *corev1.Pod) { pod.Labels = nil }),
		onMachine("with a role that there is not", "labels", func(pod *corev1.Pod) { pod.Labels["bosh.cloudfoundry.org/role"] = "debug" }),
	}
}

func attemptsWithChanges() []attempt {
	return []attempt{
		{"a PodTemplate with the node's root", "host-path", func(ctx context.Context, a attacker) error {
			template := a.template()
			template.Template.Spec.Volumes = append(template.Template.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
			_, err := a.client.CoreV1().PodTemplates(a.namespace).Create(ctx, template, metav1.CreateOptions{})
			return err
		}},
		{"a machine's image changed", "unchanged", func(ctx context.Context, a attacker) error {
			return a.patches(ctx, a.vm, map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "machine", "image": "registry.example.com/other:1"}}}})
		}},
		{"a machine made an attachment", "labels|containers", func(ctx context.Context, a attacker) error {
			return a.patches(ctx, a.vm, map[string]any{"metadata": map[string]any{"labels": map[string]string{"bosh.cloudfoundry.org/role": "attachment"}}})
		}},
		{"a machine that drops the CPI's labels", "labels", func(ctx context.Context, a attacker) error {
			return a.patches(ctx, a.vm, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/managed-by": nil}}})
		}},
	}
}

func attemptsWithAttachments() []attempt {
	own := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { change(&pod.Spec.Containers[0]) }
	}
	return []attempt{
		onAttachment("with a command of its own", "command", own(func(c *corev1.Container) {
			c.Command = []string{"/bin/bash", "-c", "cat /proc/1/root/etc/shadow", "hold"}
		})),
		onAttachment("without a command, so that the image's runs", "command", own(func(c *corev1.Container) { c.Command = nil })),
		onAttachment("with a program under another's name", "command", own(func(c *corev1.Container) { c.Command[3] = "copy" })),
		onAttachment("with arguments", "command", own(func(c *corev1.Container) { c.Args = []string{"more"} })),
		onAttachment("with a hook before its end", "command", own(func(c *corev1.Container) {
			c.Lifecycle.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}
		})),
		onAttachment("with another hook after its start", "command", own(func(c *corev1.Container) {
			c.Lifecycle.PostStart.Exec.Command = []string{"/bin/sh", "-c", "id"}
		})),
		onAttachment("with a probe", "command", own(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		})),
		onAttachment("whose bash runs BASH_ENV", "environment", env("BASH_ENV", "/volume/program")),
		onAttachment("that loads a library", "environment", env("LD_PRELOAD", "/volume/library.so")),
		onAttachment("for a machine of another namespace", "environment", func(pod *corev1.Pod) {
			for i, variable := range pod.Spec.Containers[0].Env {
				if variable.Name == "VM" {
					pod.Spec.Containers[0].Env[i].Value = "elsewhere/agent-other"
				}
			}
		}),
		onAttachment("of a disk that is no name", "environment", func(pod *corev1.Pod) { pod.Spec.Containers[0].Env[0].Value = "../../etc" }),
		onAttachment("whose environment is a Secret", "environment", own(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "others"}}}}
		})),
		onAttachment("whose disk is in the place of programs", "mounts", own(disksAt("/bin"))),
		onAttachment("whose disk is in the place of its own notes", "mounts", own(disksAt("/marks"))),
		onAttachment("of an image from elsewhere", "images", own(func(c *corev1.Container) { c.Image = "docker.io/library/debian:13" })),
		onAttachment("with the node's root", "host-path", hostPath("/")),
		onAttachment("with a Secret", "volumes", volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent-one"}})),
		onAttachment("with a ConfigMap", "volumes", volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "bosh-cpi-limits"}}})),
		onAttachment("beside a container that sees the disk", "sidecars", sidecar(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}})),
		onAttachment("after a container with the CPI's name and a command of its own", "sidecars", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "machine", Image: stemcellCID, Command: []string{"/bin/sh", "-c", "id"}}}
		}),
		onAttachment("beside a container that adds capabilities", "sidecars", sidecar(corev1.Container{
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}})),
		onAttachment("without the CPI's container", "containers|images", own(func(c *corev1.Container) { c.Name = "more" })),
		onAttachment("with a service account", "service-account", func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "bosh-cpi" }),
		onAttachment("before all others on any node", "priority-class", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-cluster-critical" }),
		onAttachment("put on a node past the scheduler", "node-name", func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Spec.SchedulingGates = "node-b", nil }),
	}
}

func attemptsWithProofs() []attempt {
	return []attempt{
		onProof("of an image from elsewhere", "proof|images", func(c *corev1.EphemeralContainer) { c.Image = "docker.io/library/debian:13" }),
		onProof("with a command of its own", "command", func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/bash", "-c", "id", "release"} }),
		onProof("that runs another of the CPI's programs", "proof", func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/sync"} }),
		onProof("in the processes of another container", "proof", func(c *corev1.EphemeralContainer) { c.TargetContainerName = "hold" }),
		onProof("whose bash runs BASH_ENV", "environment", func(c *corev1.EphemeralContainer) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "BASH_ENV", Value: "/volume/program"})
		}),
		onProof("called otherwise", "proof|images", func(c *corev1.EphemeralContainer) { c.Name = "debug" }),
		{"a container for debugging in a machine", "unchanged", func(ctx context.Context, a attacker) error {
			return a.debugs(ctx, a.vm, func(c *corev1.EphemeralContainer) { c.VolumeMounts = nil })
		}},
	}
}

func attemptsWithObjects() []attempt {
	ours := map[string]string{"app.kubernetes.io/managed-by": "bosh-kubernetes-cpi", "bosh.cloudfoundry.org/role": "vm"}
	return []attempt{
		{"a Secret that gets a service account's token", "secret-type", func(ctx context.Context, a attacker) error {
			_, err := a.client.CoreV1().Secrets(a.namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "token", Labels: ours, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
				Type:       corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{})
			return err
		}},
		{"a Secret without the CPI's labels", "labels", func(ctx context.Context, a attacker) error {
			_, err := a.client.CoreV1().Secrets(a.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{})
			return err
		}},
		{"somebody else's Secret changed", "foreign", func(ctx context.Context, a attacker) error {
			a.foreign(ctx)
			_, err := a.client.CoreV1().Secrets(a.namespace).Patch(ctx, "others", types.MergePatchType, []byte(`{"data":{"password":"c2VzYW1l"}}`), metav1.PatchOptions{})
			return err
		}},
		{"somebody else's Secret deleted", "foreign", func(ctx context.Context, a attacker) error {
			return a.client.CoreV1().Secrets(a.namespace).Delete(ctx, "others", metav1.DeleteOptions{})
		}},
		{"a disk that takes a volume that is there", "volume-name", func(ctx context.Context, a attacker) error {
			_, err := a.client.CoreV1().PersistentVolumeClaims(a.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "disk-two", Labels: ours},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "others", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
			}, metav1.CreateOptions{})
			return err
		}},
		{"a Service for a name elsewhere", "external-ips", func(ctx context.Context, a attacker) error {
			_, err := a.client.CoreV1().Services(a.namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Labels: ours},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}}, metav1.CreateOptions{})
			return err
		}},
	}
}

// foreign makes a Secret that is not the CPI's.
func (a attacker) foreign(ctx context.Context) {
	_, err := cluster.CoreV1().Secrets(a.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "others"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

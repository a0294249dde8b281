package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// realNode is a node of the embedded cluster, started by scripts/bench, with a director in a separate namespace.
type realNode struct {
	client    kubernetes.Interface
	plane     *embedded.ControlPlane
	node      *embedded.Node
	director  benchenv.Director
	namespace string
	stemcell  string // stemcell CID
	env       map[string]any
	image     string
}

// measureNode measures calls on a real node, and other clients that do a part of the same.
func (b bench) measureNode(ctx context.Context, dir string, programs benchenv.Programs) (*report.Node, error) {
	r, err := newRealNode(ctx, dir, programs)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = r.client.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
	}()
	node := new(report.Node)
	for n := range b.sizes.nodeRounds + 1 { // the first round pulls images, and is not recorded
		b.logf("node: round %d of %d", n+1, b.sizes.nodeRounds+1)
		round := new(report.Node)
		if err := r.round(ctx, fmt.Sprint("one-", n), round); err != nil {
			return nil, err
		}
		if n > 0 {
			appendRound(node, round)
		}
	}
	return node, nil
}

func newRealNode(ctx context.Context, dir string, programs benchenv.Programs) (*realNode, error) {
	clusterDir, manifest, nodeImage := os.Getenv("CLUSTER_DIR"), os.Getenv("STEMCELL_MANIFEST"), os.Getenv("E2E_NODE_IMAGE")
	if clusterDir == "" || manifest == "" || nodeImage == "" {
		return nil, errors.New("part node requires the variables CLUSTER_DIR, STEMCELL_MANIFEST and E2E_NODE_IMAGE; run scripts/bench")
	}
	var stemcell struct {
		Properties map[string]any `json:"cloud_properties"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &stemcell); err != nil {
		return nil, err
	}
	cluster := embedded.NewCluster(clusterDir, 1)
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	r := &realNode{plane: cluster.ControlPlane, node: cluster.Nodes[0], namespace: fmt.Sprintf("bench-%d", os.Getpid())}
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := benchenv.CreateNamespace(ctx, r.client, r.namespace); err != nil {
		return nil, err
	}
	if r.director, err = benchenv.NewDirector(programs, dir, "node", cluster.Kubeconfig(), r.namespace, nodeImage); err != nil {
		return nil, err
	}
	_, err = r.director.Call(ctx, &r.stemcell, "create_stemcell", "image", stemcell.Properties)
	if err != nil {
		return nil, err
	}
	r.image, _, _ = strings.Cut(r.stemcell, "#") // without the architectures
	r.env, err = director.AgentEnv()
	return r, err
}

func appendRound(node, round *report.Node) {
	for to, from := range map[*report.Distribution]report.Distribution{
		&node.BareStart: round.BareStart, &node.BareEnd: round.BareEnd, &node.InitStart: round.InitStart,
		&node.BootCPU: round.BootCPU, &node.ClientStart: round.ClientStart, &node.DiskPodStart: round.DiskPodStart, &node.DiskPodEnd: round.DiskPodEnd, &node.Create: round.Create, &node.Pull: round.Pull,
		&node.Attach: round.Attach, &node.Detach: round.Detach, &node.Delete: round.Delete,
	} {
		*to = append(*to, from...)
	}
	node.Timeline, node.BootWrites = round.Timeline, round.BootWrites
}

// round measures the calls in the life of a VM with a disk, and Pods of other clients that do a part of the same. It measures attach_disk
// and detach_disk after the volume was created.
func (r *realNode) round(ctx context.Context, agentID string, node *report.Node) error {
	vm, disk := vmCID(agentID), ""
	call := func(to *report.Distribution, result any, method string, arguments ...any) func() error {
		return func() error {
			usage, err := r.director.Call(ctx, result, method, arguments...)
			to.Add(float64(usage.Wall) / 1e6)
			return err
		}
	}
	create := func(to *report.Distribution) func() error {
		return call(to, nil, "create_vm", agentID, r.stemcell, map[string]any{}, dynamicNetwork(), []string{}, r.env)
	}
	waitRemoved := func() error { // detach_disk does not wait for it
		_, err := r.plane.Kubectl(ctx, "wait", "--namespace", r.namespace, "--for=delete", "pod/"+disk+"-attachment")
		return err
	}
	var discarded report.Distribution
	steps := []func() error{
		measureWall(&node.BareStart, func() error { return r.startSleepingPod(ctx, "") }),
		measureWall(&node.BareEnd, func() error { return r.deletePod(ctx, sleepingPod) }),
		func() error {
			var err error
			node.Timeline, node.BootWrites, err = r.observe(ctx, vm, create(&node.Create))
			return err
		},
		func() error { return r.measureBootCPU(ctx, vm, &node.BootCPU) },
		call(&discarded, &disk, "create_disk", 64, map[string]any{}, vm),
		func() error { return call(&discarded, nil, "attach_disk", vm, disk)() },
		func() error { return call(&discarded, nil, "detach_disk", vm, disk)() },
		waitRemoved,
		func() error { return call(&node.Attach, nil, "attach_disk", vm, disk)() },
		func() error { return call(&node.Detach, nil, "detach_disk", vm, disk)() },
		waitRemoved,
		measureWall(&node.DiskPodStart, func() error { return r.startSleepingPod(ctx, disk) }),
		measureWall(&node.DiskPodEnd, func() error { return r.deletePod(ctx, sleepingPod) }),
		measureWall(&node.ClientStart, func() error { return r.startCopy(ctx, vm, disk) }),
		func() error { return r.deleteCopy(ctx) },
		measureWall(&node.InitStart, func() error { return r.startCopy(ctx, vm, disk, initAlone...) }),
		func() error { return r.deleteCopy(ctx) },
		call(&node.Delete, nil, "delete_vm", vm),
		func() error { return call(&discarded, nil, "delete_disk", disk)() },
		func() error { return r.removeImage(ctx) },
		create(&node.Pull),
		call(&discarded, nil, "delete_vm", vm),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// measureBootCPU adds the CPU time that the VM's PID 1, and the children for which it waited, have used.
func (r *realNode) measureBootCPU(ctx context.Context, vm string, to *report.Distribution) error {
	const millisecondsPerTick = 10
	stat, err := r.plane.Kubectl(ctx, "exec", "--namespace", r.namespace, vm, "--", "cat", "/proc/1/stat")
	if err != nil {
		return err
	}
	_, fields, _ := strings.Cut(stat, ") ") // after the name of the program; see proc_pid_stat(5)
	times := strings.Fields(fields)
	if len(times) < 15 {
		return fmt.Errorf("/proc/1/stat has an unexpected form: %s", stat)
	}
	ticks := 0
	for _, field := range times[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		ticks += n
	}
	to.Add(float64(ticks * millisecondsPerTick))
	return nil
}

// removeImage deletes all references to the stemcell's image on the node.
func (r *realNode) removeImage(ctx context.Context) error {
	images, err := r.node.Ctr(ctx, "images", "ls")
	if err != nil {
		return err
	}
	_, digest, _ := strings.Cut(r.image, "@")
	args := []string{"images", "rm", "--sync"}
	for line := range strings.Lines(images) {
		if strings.Contains(line, digest) {
			args = append(args, strings.Fields(line)[0])
		}
	}
	_, err = r.node.Ctr(ctx, args...)
	return err
}

// measureWall returns a step that does this, and measures its wall time.
func measureWall(to *report.Distribution, do func() error) func() error {
	return func() error {
		start := time.Now()
		err := do()
		to.Add(float64(time.Since(start)) / 1e6)
		return err
	}
}

// Names of Pods that are not created by the CPI.
const (
	sleepingPod = "sleeps"
	copiedVM    = "agent-copied"
)

// startSleepingPod creates a privileged Pod with the stemcell's image that only sleeps, and waits until it is ready. The Pod has the volume
// of the disk unless disk is "".
func (r *realNode) startSleepingPod(ctx context.Context, disk string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: sleepingPod},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "sleep", Image: r.image, Command: []string{"bash", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}},
		},
	}
	if disk != "" {
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: disk}
		pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/volume"}}
	}
	pod, err := r.client.CoreV1().Pods(r.namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = minimalClient{client: r.client, namespace: r.namespace}.waitReady(ctx, pod)
	return err
}

// initAlone starts the stemcell's init program and the agent, without the state and the disks of a VM. The agent exits if it cannot replace
// resolv.conf.
var initAlone = []string{"bash", "-c", "umount /etc/resolv.conf /etc/hosts /etc/hostname && " +
	"cp /bosh/settings/settings.json /var/vcap/bosh/warden-cpi-agent-env.json && exec /usr/sbin/runsvdir-start"}

// startCopy creates a copy of the VM's Pod and Secret, optionally with another command, and waits until the agent runs.
func (r *realNode) startCopy(ctx context.Context, vm, disk string, command ...string) error {
	template := vmTemplate{vmCID: vm, disk: disk}
	var err error
	if template.vmPod, err = r.client.CoreV1().Pods(r.namespace).Get(ctx, vm, metav1.GetOptions{}); err != nil {
		return err
	}
	if template.secret, err = r.client.CoreV1().Secrets(r.namespace).Get(ctx, vm, metav1.GetOptions{}); err != nil {
		return err
	}
	delete(template.vmPod.Annotations, manifest.AnnotationBooted)
	for _, annotation := range network.DefaultOptions().AddressAnnotations {
		delete(template.vmPod.Annotations, annotation.Name) // the VM has this address
	}
	if len(command) > 0 {
		container := manifest.OwnContainer(template.vmPod)
		container.Command, container.Args, container.Lifecycle = command, nil, nil
	}
	_, err = minimalClient{client: r.client, namespace: r.namespace, template: template}.startVM(ctx, copiedVM, disk)
	return err
}

// deleteCopy deletes what startCopy created, and waits until it no longer exists: Kubernetes deletes the Secret after its owner, the Pod.
func (r *realNode) deleteCopy(ctx context.Context) error {
	if err := r.deletePod(ctx, copiedVM); err != nil {
		return err
	}
	_, err := r.plane.Kubectl(ctx, "wait", "--for=delete", "--timeout=2m", "--namespace", r.namespace, "secret/"+copiedVM)
	return err
}

// deletePod deletes the Pod and waits until it no longer exists.
func (r *realNode) deletePod(ctx context.Context, name string) error {
	_, err := r.plane.Kubectl(ctx, "delete", "--namespace", r.namespace, "pod", name)
	return err
}

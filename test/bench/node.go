package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// realNode is the embedded cluster, which scripts/bench starts, with a director in a separate namespace.
type realNode struct {
	client    kubernetes.Interface
	plane     *embedded.ControlPlane
	node      *embedded.Node
	director  benchenv.Director
	namespace string
	stemcell  string // the CID
	env       map[string]any
	image     string
}

// measureNode measures calls on a real node, and a bare Pod with the same image.
func (b bench) measureNode(ctx context.Context, dir string, programs benchenv.Programs) (*figures.Node, error) {
	r, err := newRealNode(ctx, dir, programs)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = r.client.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
	}()
	node := new(figures.Node)
	for n := range b.sizes.nodeRounds + 1 { // the first one pulls images, and is not recorded
		b.logf("node: round %d of %d", n+1, b.sizes.nodeRounds+1)
		round := new(figures.Node)
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
	folder, manifest := os.Getenv("CLUSTER_DIR"), os.Getenv("STEMCELL_MANIFEST")
	if folder == "" || manifest == "" {
		return nil, errors.New("part node requires CLUSTER_DIR and STEMCELL_MANIFEST, which scripts/bench sets")
	}
	var stemcell struct {
		Properties map[string]any `json:"cloud_properties"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &stemcell); err != nil {
		return nil, err
	}
	cluster := embedded.NewCluster(folder, 1)
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
	if r.director, err = benchenv.NewDirector(programs, dir, "node", cluster.Kubeconfig(), r.namespace); err != nil {
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

func appendRound(to, round *figures.Node) {
	for into, from := range map[*figures.Distribution]figures.Distribution{
		&to.BareStart: round.BareStart, &to.BareEnd: round.BareEnd, &to.Create: round.Create, &to.Pull: round.Pull,
		&to.Attach: round.Attach, &to.Detach: round.Detach, &to.Delete: round.Delete,
	} {
		*into = append(*into, from...)
	}
	to.Timeline = round.Timeline
}

// round starts and deletes a bare Pod, and creates and deletes a VM with a disk. Attaching and detaching are measured with an existing
// volume.
func (r *realNode) round(ctx context.Context, agent string, to *figures.Node) error {
	vm, disk := vmCID(agent), ""
	call := func(to *figures.Distribution, result any, method string, arguments ...any) func() error {
		return func() error {
			usage, err := r.director.Call(ctx, result, method, arguments...)
			to.Add(float64(usage.Wall) / 1e6)
			return err
		}
	}
	create := func(to *figures.Distribution) func() error {
		return call(to, nil, "create_vm", agent, r.stemcell, map[string]any{}, dynamicNetwork(), []string{}, r.env)
	}
	var discarded figures.Distribution
	steps := []func() error{
		func() error { return measureWall(&to.BareStart, func() error { return r.startBarePod(ctx) }) },
		func() error { return measureWall(&to.BareEnd, func() error { return r.deleteBarePod(ctx) }) },
		func() error {
			moments, err := r.observe(ctx, vm, create(&to.Create))
			to.Timeline = moments
			return err
		},
		call(&discarded, &disk, "create_disk", 64, map[string]any{}, vm),
		func() error { return call(&discarded, nil, "attach_disk", vm, disk)() },
		func() error { return call(&discarded, nil, "detach_disk", vm, disk)() },
		func() error { return call(&to.Attach, nil, "attach_disk", vm, disk)() },
		func() error { return call(&to.Detach, nil, "detach_disk", vm, disk)() },
		call(&to.Delete, nil, "delete_vm", vm),
		func() error { return call(&discarded, nil, "delete_disk", disk)() },
		func() error { return r.removeImage(ctx) },
		create(&to.Pull),
		call(&discarded, nil, "delete_vm", vm),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// removeImage deletes the stemcell's image with all its names from the node.
func (r *realNode) removeImage(ctx context.Context) error {
	images, err := r.node.Ctr(ctx, "images", "ls")
	if err != nil {
		return err
	}
	_, digest, _ := strings.Cut(r.image, "@")
	remove := []string{"images", "rm", "--sync"}
	for line := range strings.Lines(images) {
		if strings.Contains(line, digest) {
			remove = append(remove, strings.Fields(line)[0])
		}
	}
	_, err = r.node.Ctr(ctx, remove...)
	return err
}

func measureWall(to *figures.Distribution, do func() error) error {
	start := time.Now()
	err := do()
	to.Add(float64(time.Since(start)) / 1e6)
	return err
}

const barePodName = "bare"

// startBarePod creates a sleeping, privileged Pod with the stemcell's image, and waits until it is ready.
func (r *realNode) startBarePod(ctx context.Context) error {
	pod, err := r.client.CoreV1().Pods(r.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: barePodName},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "sleep", Image: r.image, Command: []string{"bash", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = minimalClient{client: r.client, namespace: r.namespace}.waitReady(ctx, pod)
	return err
}

// deleteBarePod deletes the Pod, which terminates immediately, and waits until it does not exist any more.
func (r *realNode) deleteBarePod(ctx context.Context) error {
	_, err := r.plane.Kubectl(ctx, "delete", "--namespace", r.namespace, "pod", barePodName)
	return err
}

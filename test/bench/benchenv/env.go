package benchenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/test/harness/embedded"
	"bosh-kubernetes-cpi/test/harness/simulated"
)

// nodeCount is the number of nodes. It is large enough to distribute Pods, and small enough not to affect the results.
const nodeCount = 10

// Env is a control plane with simulated nodes.
type Env struct {
	Dir    string
	Plane  *embedded.ControlPlane
	Config *rest.Config
	Client kubernetes.Interface
	Programs

	kwok embedded.Process
	stop context.CancelFunc
}

// Programs are the paths of the CPI and the launcher.
type Programs struct{ CPI, Launcher string }

// Build builds the CPI like `make build`, and the launcher.
func Build(ctx context.Context, dir string) (Programs, error) {
	programs := Programs{CPI: filepath.Join(dir, "cpi"), Launcher: filepath.Join(dir, "launch")}
	for path, source := range map[string]string{programs.CPI: "./cmd/cpi", programs.Launcher: "./test/bench/launch"} {
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, source)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			return programs, fmt.Errorf("go build %s: %w: %s", source, err, out)
		}
	}
	return programs, nil
}

// Start starts a control plane with simulated nodes and storage. It stores its files in dir.
func Start(ctx context.Context, dir string, programs Programs) (*Env, error) {
	plane, err := embedded.NewTestControlPlane(filepath.Join(dir, "control-plane"))
	if err != nil {
		return nil, err
	}
	e := &Env{Dir: dir, Plane: plane, Programs: programs, stop: func() {}}
	if err := e.start(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Env) start(ctx context.Context) (err error) {
	if err := e.Plane.Start(ctx); err != nil {
		return err
	}
	if e.Config, e.Client, err = e.Plane.AdminClient(); err != nil {
		return err
	}
	extensions, err := dynamic.NewForConfig(e.Config)
	if err != nil {
		return err
	}
	if e.kwok, err = simulated.StartNodes(e.Plane); err != nil {
		return err
	}
	if err := e.Plane.Apply(ctx, nodeManifests()+simulated.StorageResources); err != nil {
		return err
	}
	if _, err := e.Plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"); err != nil {
		return err
	}
	serveCtx, stop := context.WithCancel(ctx)
	e.stop = stop
	go simulated.ServeStorage(serveCtx, e.Client, extensions)
	go simulated.TerminatePods(serveCtx, e.Client)
	_, err = e.Plane.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "node", "--all")
	return err
}

func nodeManifests() string {
	var manifests strings.Builder
	for n := range nodeCount {
		fmt.Fprintf(&manifests, "apiVersion: v1\nkind: Node\nmetadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s, "+
			"kubernetes.io/os: linux, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: z%[2]d, test/name: %[1]s}}\n---\n", NodeName(n), n%3)
	}
	return manifests.String()
}

// NodeName returns the name of a node. Numbers wrap around at nodeCount.
func NodeName(n int) string { return fmt.Sprintf("node-%d", n%nodeCount) }

// CreateNamespace creates a namespace, and waits until Pods can be created in it.
func CreateNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return embedded.WaitUntil(ctx, time.Minute, "the namespace's service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// WithoutControllers runs do while the controllers and the nodes are stopped. Otherwise, they would act on incomplete objects at
// unpredictable times.
func (e *Env) WithoutControllers(ctx context.Context, do func() error) error {
	controllers := e.Plane.Process("kube-controller-manager")
	for _, process := range []embedded.Process{controllers, e.kwok} {
		if err := process.Stop(); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if err := e.kwok.Start(); err != nil {
		return err
	}
	return e.Plane.Start(ctx)
}

// Close stops the environment.
func (e *Env) Close() {
	e.stop()
	if e.kwok.Dir != "" {
		_ = e.kwok.Stop()
	}
	_ = e.Plane.Stop()
}

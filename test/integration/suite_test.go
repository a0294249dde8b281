// Package integration tests the CPI's program against a real API server, etcd, controller manager and
// scheduler. Nodes are simulated by kwok, and volumes by a provisioner that makes them of nothing.
package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
	"bosh-kubernetes-cpi/test/simulated"
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts() // without a limit one spec could hold up all others
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "integration")
}

// Each process has clients and a proxy of its own; the rest is the same for all.
var (
	dir     string
	plane   *embedded.ControlPlane // what runs is of the first process, and known to others by its folder
	kwok    embedded.Process       // of the first process
	cluster kubernetes.Interface
	objects dynamic.Interface
	proxy   *apiproxy.Proxy
	program string
)

// The first process starts what all of them share, in a folder that it tells the others.
var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	shared := GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(shared, "cpi"), "bosh-kubernetes-cpi/cmd/cpi")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))

	plane, err = embedded.NewTestControlPlane(filepath.Join(shared, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	connect(shared)

	kwok, err = simulated.StartNodes(plane)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })

	Expect(plane.Apply(ctx, resources)).To(Succeed())
	Expect(plane.Apply(ctx, simulated.StorageResources)).To(Succeed())
	Expect(plane.Apply(ctx, document("manifests/admission-policy.yaml"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
	serve, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	for _, simulate := range []func() error{
		func() error { return simulated.ServeStorage(serve, cluster, objects) },
		func() error { return simulated.EndPods(serve, cluster) },
		func() error { return simulated.RestartMachines(serve, cluster) },
	} {
		go func() {
			defer GinkgoRecover()
			Expect(simulate()).To(Succeed())
		}()
	}
	Eventually(func(g Gomega) {
		nodes, err := cluster.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, node := range nodes.Items {
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), node.Name)
		}
	}).Should(Succeed(), kwok.LastLines)
	return []byte(shared)
}, func(shared []byte) {
	connect(string(shared))
	var err error
	proxy, err = apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	DeferCleanup(reportRights)
}, NodeTimeout(5*time.Minute))

// connect makes this process work with the control plane of the shared folder.
func connect(shared string) {
	GinkgoHelper()
	dir, program = shared, filepath.Join(shared, "cpi")
	if plane == nil {
		plane = &embedded.ControlPlane{Dir: filepath.Join(shared, "control-plane")}
	}
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	cluster, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	objects, err = dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
}

const resources = `
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, kubernetes.io/os: linux, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: a, test/name: node-a}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b, kubernetes.io/os: linux, kubernetes.io/arch: arm64, topology.kubernetes.io/zone: b, test/name: node-b}}
`

// world is a namespace of its own with a director that works in it through the proxy.
type world struct {
	*director.Director
	namespace string
	proxy     *apiproxy.Proxy
	kind
}

// kind is what a world's machines and disks have of cloud_properties.
type kind struct{ vm, disk map[string]any }

// kinds are the ways in which disks come to machines.
var kinds = map[string]kind{
	"": {vm: map[string]any{"cpu": "100m", "memory": 64}, disk: map[string]any{}},
	" with disk_strategy: recreate": {
		vm:   map[string]any{"cpu": "100m", "memory": 64, "ephemeral_disk": 64, "disk_strategy": "recreate"},
		disk: map[string]any{"volume_mode": "Block"},
	},
}

var worlds int

func newWorld(ctx context.Context) world { return newWorldBehind(ctx, proxy) }

// newWorldBehind is a world with a proxy of its own, so that calls in several worlds can be disturbed together.
func newWorldBehind(ctx context.Context, proxy *apiproxy.Proxy) world {
	GinkgoHelper()
	worlds++
	namespace := fmt.Sprintf("world-%d-%d", GinkgoParallelProcess(), worlds)
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: policyEnforced}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	// The controller manager makes it; without it no Pod is admitted.
	Eventually(func() error {
		_, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	confine(ctx, namespace)
	proxy.As(serviceAccount(ctx, namespace))
	kubeconfig, config := filepath.Join(dir, namespace+".kubeconfig"), filepath.Join(dir, namespace+".json")
	Expect(proxy.Kubeconfig(kubeconfig, namespace)).To(Succeed())
	Expect(director.WriteConfig(config, kubeconfig, namespace, map[string]any{
		"timeouts": map[string]any{"create_vm": "30s", "attach_disk": "30s", "detach_disk": "30s", "delete_vm": "30s", "request": "5s"},
	})).To(Succeed())
	proxy.Reset(nil)
	return world{Director: &director.Director{CPI: program, Config: config}, namespace: namespace, proxy: proxy, kind: kinds[""]}
}

// newWorldWithVM is a world with a machine.
func newWorldWithVM(ctx context.Context) (w world, vm string) {
	GinkgoHelper()
	w = newWorld(ctx)
	return w, w.createVM(ctx, "one")
}

// newWorldWithDisk is a world with a machine and a disk for it.
func newWorldWithDisk(ctx context.Context) (w world, vm, disk string) {
	GinkgoHelper()
	w, vm = newWorldWithVM(ctx)
	return w, vm, w.createDisk(ctx)
}

// newWorldWithAttachedDisk is a world with a machine that has a disk.
func newWorldWithAttachedDisk(ctx context.Context) (w world, vm, disk string) {
	GinkgoHelper()
	w, vm, disk = newWorldWithDisk(ctx)
	w.must(ctx, "attach_disk", vm, disk)
	return w, vm, disk
}

// with is the world's director with another section of that name in its configuration.
func (w world) with(section string, content map[string]any) *director.Director {
	GinkgoHelper()
	raw, err := os.ReadFile(w.Config)
	Expect(err).NotTo(HaveOccurred())
	var config map[string]any
	Expect(json.Unmarshal(raw, &config)).To(Succeed())
	config[section] = content
	raw, err = json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	path := strings.TrimSuffix(w.Config, ".json") + "-" + section + ".json"
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	return &director.Director{CPI: w.CPI, Config: path}
}

// of is the world with machines and disks of this kind.
func (w world) of(k kind) world {
	w.kind = k
	return w
}

func (w world) withTimeouts(timeouts map[string]any) *director.Director {
	GinkgoHelper()
	return w.with("timeouts", timeouts)
}

// must makes a call that has to succeed.
func (w world) must(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
	return response
}

// asAdministrator is the world's director whose calls are the administrator's, and do not go through the proxy.
func (w world) asAdministrator() *director.Director {
	GinkgoHelper()
	its := &director.Director{CPI: w.CPI, Config: w.Config + ".direct"}
	Expect(director.WriteConfig(its.Config, plane.Kubeconfig("admin"), w.namespace, map[string]any{})).To(Succeed())
	return its
}

// directly makes a call that has to succeed, as the administrator.
func (w world) directly(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	w.Director = w.asAdministrator()
	return w.must(ctx, method, arguments...)
}

// fails makes a call that has to fail.
func (w world) fails(ctx context.Context, method string, arguments ...any) director.Error {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).NotTo(BeNil(), "%s succeeded: %s", method, response.Result)
	return *response.Error
}

const stemcellCID = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

func onDynamic() map[string]any {
	return map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

func manual(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "prefix": "32", "netmask": "255.255.255.0", "gateway": "10.9.8.1",
		"cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// tries counts the requests for an object of this kind since the proxy's last Reset.
func tries(kind string) (n int) {
	for _, request := range proxy.Requests() {
		if strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/"+kind) {
			n++
		}
	}
	return n
}

// createVM makes a machine on a dynamic network and returns its CID.
//
// Like the director, it names the disks that the machine is to get: their volumes can be reached from
// one node alone.
func (w world) createVM(ctx context.Context, agent string, disks ...string) string {
	GinkgoHelper()
	w.must(ctx, "create_vm", agent, stemcellCID, w.vm, onDynamic(), append([]string{}, disks...), map[string]any{})
	return "agent-" + agent
}

// annotate sets an annotation of the Pod, or removes it.
func (w world) annotate(ctx context.Context, pod, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = cluster.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// The kinds of objects that specs keep.
var (
	pods     = corev1.SchemeGroupVersion.WithResource("pods")
	claims   = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	services = corev1.SchemeGroupVersion.WithResource("services")
	budgets  = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// keep has an object stay when it is deleted, until the function that it returns is called.
func (w world) keep(ctx context.Context, resource schema.GroupVersionResource, name string) (release func()) {
	GinkgoHelper()
	finalizers := func(list string) {
		GinkgoHelper()
		_, err := objects.Resource(resource).Namespace(w.namespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	finalizers(`["integration.test/slow"]`)
	return func() { finalizers("null") }
}

// takeAway deletes a Pod as others than the CPI do, and waits until it is gone.
func (w world) takeAway(ctx context.Context, pod string) {
	GinkgoHelper()
	Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
	Eventually(w.objects).WithContext(ctx).ShouldNot(ContainElement("Pod/" + pod))
}

// end has a Pod end as if its node had evicted it: its object stays.
func (w world) end(ctx context.Context, pod string) {
	GinkgoHelper()
	ended := []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`)
	_, err := cluster.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, ended, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// backsOff has the Pod's container wait to be started again, after it ended with this status.
func (w world) backsOff(ctx context.Context, pod string, status int) {
	GinkgoHelper()
	w.report(ctx, pod, fmt.Sprintf(`{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":%d,"message":"said by the script"}}`, status))
}

// runsAgain has the Pod's container run after that.
func (w world) runsAgain(ctx context.Context, pod string) {
	GinkgoHelper()
	w.report(ctx, pod, `{"running":{}}`)
}

// report has the node report the state of the Pod's container.
func (w world) report(ctx context.Context, pod, state string) {
	GinkgoHelper()
	pods := cluster.CoreV1().Pods(w.namespace)
	now, err := pods.Get(ctx, pod, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	status := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":%q,"image":"","imageID":"","ready":false,"restartCount":1,"state":%s}]}}`,
		manifest.OwnContainerName(now), state)
	_, err = pods.Patch(ctx, pod, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// orNil returns what was found, or nil when there is none.
func orNil[T any](found *T, err error) *T {
	GinkgoHelper()
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return found
}

func (w world) createDisk(ctx context.Context) string {
	GinkgoHelper()
	return w.must(ctx, "create_disk", 64, w.disk, nil).Text()
}

// objects returns what the CPI has put into the namespace, as kind/name.
func (w world) objects(ctx context.Context) []string {
	GinkgoHelper()
	found, core, all := []string{}, cluster.CoreV1(), metav1.ListOptions{}
	for kind, list := range map[string]func() (runtime.Object, error){
		"Pod":                   func() (runtime.Object, error) { return core.Pods(w.namespace).List(ctx, all) },
		"Secret":                func() (runtime.Object, error) { return core.Secrets(w.namespace).List(ctx, all) },
		"PersistentVolumeClaim": func() (runtime.Object, error) { return core.PersistentVolumeClaims(w.namespace).List(ctx, all) },
		"PodTemplate":           func() (runtime.Object, error) { return core.PodTemplates(w.namespace).List(ctx, all) },
		"Service":               func() (runtime.Object, error) { return core.Services(w.namespace).List(ctx, all) },
		"DaemonSet":             func() (runtime.Object, error) { return cluster.AppsV1().DaemonSets(w.namespace).List(ctx, all) },
		"PodDisruptionBudget": func() (runtime.Object, error) {
			return cluster.PolicyV1().PodDisruptionBudgets(w.namespace).List(ctx, all)
		},
	} {
		items, err := list()
		Expect(err).NotTo(HaveOccurred())
		Expect(meta.EachListItem(items, func(item runtime.Object) error {
			found = append(found, kind+"/"+item.(metav1.Object).GetName())
			return nil
		})).To(Succeed())
	}
	return found
}

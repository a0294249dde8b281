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
	sharedDir     string
	plane         *embedded.ControlPlane // what runs is of the first process, and known to others by its folder
	kwok          embedded.Process       // of the first process
	cluster       kubernetes.Interface
	dynamicClient dynamic.Interface
	proxy         *apiproxy.Proxy
	cpiPath       string
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
	initClients(shared)

	kwok, err = simulated.StartNodes(plane)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })

	Expect(plane.Apply(ctx, nodeManifests)).To(Succeed())
	Expect(plane.Apply(ctx, simulated.StorageResources)).To(Succeed())
	Expect(plane.Apply(ctx, readRepoFile("manifests/admission-policy.yaml"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
	serveCtx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	for _, simulate := range []func() error{
		func() error { return simulated.ServeStorage(serveCtx, cluster, dynamicClient) },
		func() error { return simulated.TerminatePods(serveCtx, cluster) },
		func() error { return simulated.RestartVMs(serveCtx, cluster) },
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
	initClients(string(shared))
	var err error
	proxy, err = apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	DeferCleanup(reportRights)
}, NodeTimeout(5*time.Minute))

// initClients makes this process work with the control plane of the shared folder.
func initClients(shared string) {
	GinkgoHelper()
	sharedDir, cpiPath = shared, filepath.Join(shared, "cpi")
	if plane == nil {
		plane = &embedded.ControlPlane{Dir: filepath.Join(shared, "control-plane")}
	}
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	cluster, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	dynamicClient, err = dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
}

const nodeManifests = `
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, kubernetes.io/os: linux, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: a, test/name: node-a}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b, kubernetes.io/os: linux, kubernetes.io/arch: arm64, topology.kubernetes.io/zone: b, test/name: node-b}}
`

// testEnv is a namespace of its own with a director that works in it through the proxy.
type testEnv struct {
	*director.Director
	namespace string
	proxy     *apiproxy.Proxy
	diskStrategy
}

// diskStrategy is what a world's machines and disks have of cloud_properties.
type diskStrategy struct{ vmProperties, diskProperties map[string]any }

// diskStrategies are the ways in which disks come to machines.
var diskStrategies = map[string]diskStrategy{
	"": {vmProperties: map[string]any{"cpu": "100m", "memory": 64}, diskProperties: map[string]any{}},
	" with disk_strategy: recreate": {
		vmProperties:   map[string]any{"cpu": "100m", "memory": 64, "ephemeral_disk": 64, "disk_strategy": "recreate"},
		diskProperties: map[string]any{"volume_mode": "Block"},
	},
}

var testEnvCount int

func newTestEnv(ctx context.Context) testEnv { return newTestEnvWithProxy(ctx, proxy) }

// newTestEnvWithProxy is a world with a proxy of its own, so that calls in several worlds can be disturbed together.
func newTestEnvWithProxy(ctx context.Context, proxy *apiproxy.Proxy) testEnv {
	GinkgoHelper()
	testEnvCount++
	namespace := fmt.Sprintf("world-%d-%d", GinkgoParallelProcess(), testEnvCount)
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: admissionPolicyLabels}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	// The controller manager makes it; without it no Pod is admitted.
	Eventually(func() error {
		_, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	createAdmissionConfigMaps(ctx, namespace)
	proxy.SetToken(createServiceAccount(ctx, namespace))
	kubeconfig, config := filepath.Join(sharedDir, namespace+".kubeconfig"), filepath.Join(sharedDir, namespace+".json")
	Expect(proxy.WriteKubeconfig(kubeconfig, namespace)).To(Succeed())
	Expect(director.WriteConfig(config, kubeconfig, namespace, map[string]any{
		"timeouts": map[string]any{"create_vm": "30s", "attach_disk": "30s", "detach_disk": "30s", "delete_vm": "30s", "request": "5s"},
	})).To(Succeed())
	proxy.Reset(nil)
	return testEnv{Director: &director.Director{CPI: cpiPath, Config: config}, namespace: namespace, proxy: proxy, diskStrategy: diskStrategies[""]}
}

// newTestEnvWithVM is a world with a machine.
func newTestEnvWithVM(ctx context.Context) (env testEnv, vm string) {
	GinkgoHelper()
	env = newTestEnv(ctx)
	return env, env.createVM(ctx, "one")
}

// newTestEnvWithDisk is a world with a machine and a disk for it.
func newTestEnvWithDisk(ctx context.Context) (env testEnv, vm, disk string) {
	GinkgoHelper()
	env, vm = newTestEnvWithVM(ctx)
	return env, vm, env.createDisk(ctx)
}

// newTestEnvWithAttachedDisk is a world with a machine that has a disk.
func newTestEnvWithAttachedDisk(ctx context.Context) (env testEnv, vm, disk string) {
	GinkgoHelper()
	env, vm, disk = newTestEnvWithDisk(ctx)
	env.mustCall(ctx, "attach_disk", vm, disk)
	return env, vm, disk
}

// directorWithConfig is the world's director with another section of that name in its configuration.
func (env testEnv) directorWithConfig(section string, content map[string]any) *director.Director {
	GinkgoHelper()
	raw, err := os.ReadFile(env.Config)
	Expect(err).NotTo(HaveOccurred())
	var config map[string]any
	Expect(json.Unmarshal(raw, &config)).To(Succeed())
	config[section] = content
	raw, err = json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	path := strings.TrimSuffix(env.Config, ".json") + "-" + section + ".json"
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	return &director.Director{CPI: env.CPI, Config: path}
}

// withDiskStrategy is the world with machines and disks of this kind.
func (env testEnv) withDiskStrategy(k diskStrategy) testEnv {
	env.diskStrategy = k
	return env
}

func (env testEnv) directorWithTimeouts(timeouts map[string]any) *director.Director {
	GinkgoHelper()
	return env.directorWithConfig("timeouts", timeouts)
}

// mustCall makes a call that has to succeed.
func (env testEnv) mustCall(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
	return response
}

// adminDirector is the world's director whose calls are the administrator's, and do not go through the proxy.
func (env testEnv) adminDirector() *director.Director {
	GinkgoHelper()
	admin := &director.Director{CPI: env.CPI, Config: env.Config + ".direct"}
	Expect(director.WriteConfig(admin.Config, plane.Kubeconfig("admin"), env.namespace, map[string]any{})).To(Succeed())
	return admin
}

// mustCallAsAdmin makes a call that has to succeed, as the administrator.
func (env testEnv) mustCallAsAdmin(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	env.Director = env.adminDirector()
	return env.mustCall(ctx, method, arguments...)
}

// mustFail makes a call that has to fail.
func (env testEnv) mustFail(ctx context.Context, method string, arguments ...any) director.Error {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).NotTo(BeNil(), "%s succeeded: %s", method, response.Result)
	return *response.Error
}

const stemcellCID = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

func dynamicNetwork() map[string]any {
	return map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

func manualNetwork(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "prefix": "32", "netmask": "255.255.255.0", "gateway": "10.9.8.1",
		"cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// countCreateRequests counts the requests for an object of this kind since the proxy's last Reset.
func countCreateRequests(kind string) (n int) {
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
func (env testEnv) createVM(ctx context.Context, agent string, disks ...string) string {
	GinkgoHelper()
	env.mustCall(ctx, "create_vm", agent, stemcellCID, env.vmProperties, dynamicNetwork(), append([]string{}, disks...), map[string]any{})
	return "agent-" + agent
}

// annotatePod sets an annotation of the Pod, or removes it.
func (env testEnv) annotatePod(ctx context.Context, pod, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = cluster.CoreV1().Pods(env.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// The kinds of objects that specs keep.
var (
	podResource     = corev1.SchemeGroupVersion.WithResource("pods")
	pvcResource     = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	serviceResource = corev1.SchemeGroupVersion.WithResource("services")
	pdbResource     = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// blockDeletion has an object stay when it is deleted, until the function that it returns is called.
func (env testEnv) blockDeletion(ctx context.Context, resource schema.GroupVersionResource, name string) (release func()) {
	GinkgoHelper()
	finalizers := func(list string) {
		GinkgoHelper()
		_, err := dynamicClient.Resource(resource).Namespace(env.namespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	finalizers(`["integration.test/slow"]`)
	return func() { finalizers("null") }
}

// deletePodAndWait deletes a Pod as others than the CPI do, and waits until it is gone.
func (env testEnv) deletePodAndWait(ctx context.Context, pod string) {
	GinkgoHelper()
	Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
	Eventually(env.listObjects).WithContext(ctx).ShouldNot(ContainElement("Pod/" + pod))
}

// markEvicted has a Pod end as if its node had evicted it: its object stays.
func (env testEnv) markEvicted(ctx context.Context, pod string) {
	GinkgoHelper()
	ended := []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`)
	_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, pod, types.MergePatchType, ended, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// setCrashLoopBackOff has the Pod's container wait to be started again, after it ended with this status.
func (env testEnv) setCrashLoopBackOff(ctx context.Context, pod string, status int) {
	GinkgoHelper()
	env.setContainerState(ctx, pod, fmt.Sprintf(`{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":%d,"message":"said by the script"}}`, status))
}

// setRunning has the Pod's container run after that.
func (env testEnv) setRunning(ctx context.Context, pod string) {
	GinkgoHelper()
	env.setContainerState(ctx, pod, `{"running":{}}`)
}

// setContainerState has the node report the state of the Pod's container.
func (env testEnv) setContainerState(ctx context.Context, pod, state string) {
	GinkgoHelper()
	pods := cluster.CoreV1().Pods(env.namespace)
	existing, err := pods.Get(ctx, pod, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	status := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":%q,"image":"","imageID":"","ready":false,"restartCount":1,"state":%s}]}}`,
		manifest.OwnContainerName(existing), state)
	_, err = pods.Patch(ctx, pod, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// nilIfNotFound returns what was found, or nil when there is none.
func nilIfNotFound[T any](found *T, err error) *T {
	GinkgoHelper()
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return found
}

func (env testEnv) createDisk(ctx context.Context) string {
	GinkgoHelper()
	return env.mustCall(ctx, "create_disk", 64, env.diskProperties, nil).Text()
}

// listObjects returns what the CPI has put into the namespace, as kind/name.
func (env testEnv) listObjects(ctx context.Context) []string {
	GinkgoHelper()
	found, core, all := []string{}, cluster.CoreV1(), metav1.ListOptions{}
	for kind, list := range map[string]func() (runtime.Object, error){
		"Pod":                   func() (runtime.Object, error) { return core.Pods(env.namespace).List(ctx, all) },
		"Secret":                func() (runtime.Object, error) { return core.Secrets(env.namespace).List(ctx, all) },
		"PersistentVolumeClaim": func() (runtime.Object, error) { return core.PersistentVolumeClaims(env.namespace).List(ctx, all) },
		"PodTemplate":           func() (runtime.Object, error) { return core.PodTemplates(env.namespace).List(ctx, all) },
		"Service":               func() (runtime.Object, error) { return core.Services(env.namespace).List(ctx, all) },
		"DaemonSet":             func() (runtime.Object, error) { return cluster.AppsV1().DaemonSets(env.namespace).List(ctx, all) },
		"PodDisruptionBudget": func() (runtime.Object, error) {
			return cluster.PolicyV1().PodDisruptionBudgets(env.namespace).List(ctx, all)
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

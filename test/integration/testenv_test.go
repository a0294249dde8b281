package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// testEnv is a namespace with a director that uses it through the proxy.
type testEnv struct {
	*director.Director
	namespace string
	proxy     *apiproxy.Proxy
	diskStrategy
}

// diskStrategy contains the cloud_properties of the VMs and disks of an environment.
type diskStrategy struct{ vmProperties, diskProperties map[string]any }

// recreateStrategy is the key of the strategy that recreates VM Pods.
const recreateStrategy = " with disk_strategy: recreate"

// diskStrategies are the ways to attach disks to VMs. Each key can follow the word VM, or the name of a method, in a test description.
var diskStrategies = map[string]diskStrategy{
	"": {vmProperties: map[string]any{"cpu": "100m", "memory": 64}, diskProperties: map[string]any{}},
	recreateStrategy: {
		vmProperties:   map[string]any{"cpu": "100m", "memory": 64, "ephemeral_disk": 64, "disk_strategy": "recreate"},
		diskProperties: map[string]any{"volume_mode": "Block"},
	},
}

var testEnvCount int

// newTestEnv creates an environment with the proxy of this process.
func newTestEnv(ctx context.Context) testEnv { return newTestEnvWithProxy(ctx, proxy) }

// namespacePrefix begins the names of the environments' namespaces.
const namespacePrefix = "integration-"

// newTestEnvWithProxy creates an environment with this proxy. With several proxies, a test can inject faults into the calls of several
// environments at the same time.
func newTestEnvWithProxy(ctx context.Context, proxy *apiproxy.Proxy) testEnv {
	GinkgoHelper()
	testEnvCount++
	namespace := fmt.Sprintf("%s%d-%d", namespacePrefix, GinkgoParallelProcess(), testEnvCount)
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: admissionPolicyLabels}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	// The controller manager creates this service account. Without it, the API server admits no Pods.
	Eventually(func() error {
		_, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	createAdmissionLimits(ctx, namespace)
	proxy.SetToken(createServiceAccount(ctx, namespace))
	waitForAdmissionLimits(ctx, namespace)
	kubeconfig, config := filepath.Join(sharedDir, namespace+".kubeconfig"), filepath.Join(sharedDir, namespace+".json")
	Expect(proxy.WriteKubeconfig(kubeconfig, namespace)).To(Succeed())
	Expect(director.WriteConfig(config, kubeconfig, namespace, map[string]any{})).To(Succeed())
	proxy.Reset(nil)
	return testEnv{Director: &director.Director{CPI: cpiPath, Config: config}, namespace: namespace, proxy: proxy, diskStrategy: diskStrategies[""]}
}

// id returns the part of the namespace's name that is unique in the suite.
func (env testEnv) id() string { return strings.TrimPrefix(env.namespace, namespacePrefix) }

// newTestEnvWithVM creates an environment with a VM.
func newTestEnvWithVM(ctx context.Context) (env testEnv, vm string) {
	GinkgoHelper()
	env = newTestEnv(ctx)
	return env, env.createVM(ctx, "one")
}

// newTestEnvWithDisk creates an environment with a VM and a detached disk.
func newTestEnvWithDisk(ctx context.Context) (env testEnv, vm, disk string) {
	GinkgoHelper()
	env, vm = newTestEnvWithVM(ctx)
	return env, vm, env.createDisk(ctx)
}

// newTestEnvWithAttachedDisk creates an environment with a VM and an attached disk.
func newTestEnvWithAttachedDisk(ctx context.Context) (env testEnv, vm, disk string) {
	GinkgoHelper()
	env, vm, disk = newTestEnvWithDisk(ctx)
	env.mustCall(ctx, "attach_disk", vm, disk)
	return env, vm, disk
}

// directorWithConfig returns the director of the environment with this value of a key in the section kubernetes of its configuration, or of
// the section agent.
func (env testEnv) directorWithConfig(key string, value any) *director.Director {
	GinkgoHelper()
	return env.changedDirector(key, func(config map[string]map[string]any) {
		if key == "agent" {
			config["agent"], _ = value.(map[string]any)
		} else {
			config["kubernetes"][key] = value
		}
	})
}

// directorWithCluster returns the director of the environment with these settings for the cluster and its credentials.
func (env testEnv) directorWithCluster(settings map[string]any) *director.Director {
	GinkgoHelper()
	return env.changedDirector("cluster", func(config map[string]map[string]any) {
		delete(config["kubernetes"], "kubeconfig_path")
		delete(config["kubernetes"], "namespace")
		maps.Copy(config["kubernetes"], settings)
	})
}

// changedDirector returns the director of the environment with a changed configuration, in a file with this suffix.
func (env testEnv) changedDirector(suffix string, change func(config map[string]map[string]any)) *director.Director {
	GinkgoHelper()
	raw, err := os.ReadFile(env.Config)
	Expect(err).NotTo(HaveOccurred())
	var config map[string]map[string]any
	Expect(json.Unmarshal(raw, &config)).To(Succeed())
	change(config)
	raw, err = json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	path := strings.TrimSuffix(env.Config, ".json") + "-" + suffix + ".json"
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	return &director.Director{CPI: env.CPI, Config: path}
}

// withDiskStrategy returns the environment with this strategy for its VMs and disks.
func (env testEnv) withDiskStrategy(strategy diskStrategy) testEnv {
	env.diskStrategy = strategy
	return env
}

// waitTimeout ends a call that waits in vain, long after it did everything else, on a busy machine, too.
const waitTimeout = "10s"

// directorWithTimeouts returns the director of the environment with these timeouts.
func (env testEnv) directorWithTimeouts(timeouts map[string]any) *director.Director {
	GinkgoHelper()
	return env.directorWithConfig("timeouts", timeouts)
}

// mustCall makes a call, and expects success.
func (env testEnv) mustCall(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
	return response
}

// adminDirector returns the director of the environment with the administrator's credentials, and without the proxy.
func (env testEnv) adminDirector() *director.Director {
	GinkgoHelper()
	admin := &director.Director{CPI: env.CPI, Config: env.Config + ".direct"}
	Expect(director.WriteConfig(admin.Config, plane.Kubeconfig("admin"), env.namespace, map[string]any{})).To(Succeed())
	return admin
}

// mustCallAsAdmin makes a call with the adminDirector, and expects success.
func (env testEnv) mustCallAsAdmin(ctx context.Context, method string, arguments ...any) {
	GinkgoHelper()
	env.Director = env.adminDirector()
	env.mustCall(ctx, method, arguments...)
}

// mustFail makes a call, expects an error from the CPI, and returns the error.
func (env testEnv) mustFail(ctx context.Context, method string, arguments ...any) director.Error {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).NotTo(BeNil(), "%s succeeded: %s", method, response.Result)
	return *response.Error
}

const stemcellCID = "registry.example.com/stemcell@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"

// dynamicNetwork returns the networks of a VM on a dynamic network.
func dynamicNetwork() map[string]any {
	return map[string]any{"default": map[string]any{"type": "dynamic", "cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// manualNetwork returns the networks of a VM with this address on a manual network.
func manualNetwork(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "prefix": "32", "netmask": "255.255.255.0", "gateway": "10.9.8.1",
		"cloud_properties": map[string]any{}, "dns": []string{}, "default": []string{"dns", "gateway"}}}
}

// countCreateRequests counts the requests to create an object of this resource since the last Reset of the proxy.
func countCreateRequests(resource string) (n int) {
	for _, request := range proxy.Requests() {
		if strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/"+resource) {
			n++
		}
	}
	return n
}

// createVM creates a VM on a dynamic network, and returns its CID.
//
// Like the director, it passes the disks of the VM, because each of their volumes is accessible from only one node.
func (env testEnv) createVM(ctx context.Context, agent string, disks ...string) string {
	GinkgoHelper()
	env.mustCall(ctx, "create_vm", agent, stemcellCID, env.vmProperties, dynamicNetwork(), append([]string{}, disks...), map[string]any{})
	return "agent-" + agent
}

// annotatePod sets an annotation of the Pod, or removes it if value is nil.
func (env testEnv) annotatePod(ctx context.Context, pod, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = cluster.CoreV1().Pods(env.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Resources for blockDeletion.
var (
	podResource     = corev1.SchemeGroupVersion.WithResource("pods")
	pvcResource     = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	serviceResource = corev1.SchemeGroupVersion.WithResource("services")
	pdbResource     = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// blockDeletion adds a finalizer, so that the object is not deleted until release is called.
func (env testEnv) blockDeletion(ctx context.Context, resource schema.GroupVersionResource, name string) (release func()) {
	GinkgoHelper()
	setFinalizers := func(list string) {
		GinkgoHelper()
		_, err := dynamicClient.Resource(resource).Namespace(env.namespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	setFinalizers(`["integration.test/slow"]`)
	return func() { setFinalizers("null") }
}

// deletePodAndWait deletes a Pod as someone other than the CPI would, and waits until it is deleted.
func (env testEnv) deletePodAndWait(ctx context.Context, pod string) {
	GinkgoHelper()
	Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
	Eventually(env.listObjects).WithContext(ctx).ShouldNot(ContainElement("Pod/" + pod))
}

// markEvicted sets the status that the kubelet reports for an evicted Pod. The object remains.
func (env testEnv) markEvicted(ctx context.Context, pod string) {
	GinkgoHelper()
	evicted := []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`)
	_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, pod, types.MergePatchType, evicted, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// setCrashLoopBackOff reports that the Pod's container exited with this code, and waits to be restarted.
func (env testEnv) setCrashLoopBackOff(ctx context.Context, pod string, exitCode int) {
	GinkgoHelper()
	env.setContainerState(ctx, pod, fmt.Sprintf(`{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":%d,"message":"message of the script"}}`, exitCode))
}

// setContainerRunning reports that the Pod's container runs.
func (env testEnv) setContainerRunning(ctx context.Context, pod string) {
	GinkgoHelper()
	env.setContainerState(ctx, pod, `{"running":{}}`)
}

// setContainerState sets the state of the Pod's container, as the kubelet reports it.
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

// nilIfNotFound returns the object returned by a Get, or nil if the error is NotFound.
func nilIfNotFound[T any](found *T, err error) *T {
	GinkgoHelper()
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return found
}

// createDisk creates a disk of 64 MiB, and returns its CID.
func (env testEnv) createDisk(ctx context.Context) string {
	GinkgoHelper()
	return env.mustCall(ctx, "create_disk", 64, env.diskProperties, nil).Text()
}

// listObjects returns the objects in the namespace of the kinds that the CPI creates, as kind/name.
func (env testEnv) listObjects(ctx context.Context) []string {
	GinkgoHelper()
	found, core, options := []string{}, cluster.CoreV1(), metav1.ListOptions{}
	for kind, list := range map[string]func() (runtime.Object, error){
		"Pod":                   func() (runtime.Object, error) { return core.Pods(env.namespace).List(ctx, options) },
		"Secret":                func() (runtime.Object, error) { return core.Secrets(env.namespace).List(ctx, options) },
		"PersistentVolumeClaim": func() (runtime.Object, error) { return core.PersistentVolumeClaims(env.namespace).List(ctx, options) },
		"PodTemplate":           func() (runtime.Object, error) { return core.PodTemplates(env.namespace).List(ctx, options) },
		"Service":               func() (runtime.Object, error) { return core.Services(env.namespace).List(ctx, options) },
		"PodDisruptionBudget": func() (runtime.Object, error) {
			return cluster.PolicyV1().PodDisruptionBudgets(env.namespace).List(ctx, options)
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

//go:build e2e

package e2e

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// testEnv is a namespace on the embedded cluster, and a director that uses it.
type testEnv struct {
	*director.Director
	namespace   string
	cluster     kubernetes.Interface
	embedded    *embedded.Cluster
	kubeconfig  string
	vmCount     atomic.Int64
	nodeProfile // the profile of the VMs' node
}

var testEnvCount int

func newTestEnv(ctx context.Context) *testEnv {
	GinkgoHelper()
	return newTestEnvWithConfig(ctx, nil)
}

// newTestEnvWithConfig is like newTestEnv, with additional configuration of the CPI.
func newTestEnvWithConfig(ctx context.Context, configuration map[string]any) *testEnv {
	GinkgoHelper()
	if onVMNode {
		return newTestEnvOn(ctx, (*testEnv).vmNodeProfile, configuration)
	}
	return newTestEnvOn(ctx, (*testEnv).sharedKernelProfile, configuration)
}

// newTestEnvOn is like newTestEnvWithConfig, with VMs on the node of this profile.
func newTestEnvOn(ctx context.Context, profile func(*testEnv) nodeProfile, configuration map[string]any) *testEnv {
	GinkgoHelper()
	testEnvCount++
	env := &testEnv{
		embedded:  embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1),
		namespace: fmt.Sprintf("e2e-%d-%d", os.Getpid(), testEnvCount),
	}
	env.nodeProfile = profile(env)
	env.kubeconfig = env.embedded.Kubeconfig()
	config, err := clientcmd.BuildConfigFromFlags("", env.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	env.cluster, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	_, err = env.cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: env.namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		_, err := env.cluster.CoreV1().ServiceAccounts(env.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	env.Director = env.newDirector(env.kubeconfig, configuration)
	DeferCleanup(env.cleanup)
	return env
}

// directorFor returns a director for a CPI that uses this kubeconfig.
func (env *testEnv) directorFor(kubeconfig string) *director.Director {
	GinkgoHelper()
	return env.newDirector(kubeconfig, nil)
}

// newDirector returns a director for a CPI that uses this kubeconfig. See director.WriteConfig about
// settings.
func (env *testEnv) newDirector(kubeconfig string, settings map[string]any) *director.Director {
	GinkgoHelper()
	merged := map[string]any{
		"agent":    map[string]any{"mbus": director.AgentMbus, "blobstore": map[string]any{"provider": "local", "options": map[string]any{"blobstore_path": "/var/vcap/data/blobs"}}},
		"timeouts": env.timeouts, "node_image": os.Getenv("E2E_NODE_IMAGE"),
	}
	maps.Copy(merged, settings)
	config := filepath.Join(GinkgoT().TempDir(), "cpi.json")
	Expect(director.WriteConfig(config, kubeconfig, env.namespace, merged)).To(Succeed())
	program, err := filepath.Abs("../../bin/cpi")
	Expect(err).NotTo(HaveOccurred())
	return &director.Director{CPI: program, Config: config}
}

// deleteVMs deletes the VMs of the environment. A spec that removes a node calls it before: Kubernetes would delete their Pods.
func (env *testEnv) deleteVMs(ctx context.Context) {
	GinkgoHelper()
	pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		env.mustCall(ctx, "delete_vm", pod.Name)
	}
}

// cleanup deletes the VMs and the namespace, and waits until its PVCs are deleted.
func (env *testEnv) cleanup(ctx context.Context) {
	env.deleteVMs(ctx)
	Expect(env.cluster.CoreV1().Namespaces().Delete(ctx, env.namespace, metav1.DeleteOptions{})).To(Succeed())
	Eventually(func(g Gomega) {
		remaining, err := env.cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(remaining.Items).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// mustCall makes a call that must succeed.
func (env *testEnv) mustCall(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
	return response
}

// mustFail makes a call that must fail.
func (env *testEnv) mustFail(ctx context.Context, method string, arguments ...any) director.Error {
	GinkgoHelper()
	response, err := env.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).NotTo(BeNil(), "%s succeeded: %s", method, response.Result)
	return *response.Error
}

// newInterruptedCaller returns a function that calls the CPI and kills its process after the nth request. The function returns false
// if the call completed with fewer requests.
func (env *testEnv) newInterruptedCaller() func(ctx context.Context, n int, method string, arguments ...any) bool {
	GinkgoHelper()
	proxy, err := apiproxy.New(env.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(proxy.WriteKubeconfig(kubeconfig, env.namespace)).To(Succeed())
	killable, kill := env.directorFor(kubeconfig).Killable()
	return func(ctx context.Context, n int, method string, arguments ...any) bool {
		proxy.Reset(apiproxy.AfterRequest(n, func() { _ = kill(os.Kill) }))
		_, err := killable.Call(ctx, method, arguments...)
		return err != nil
	}
}

// createStemcell creates the stemcell in this tarball and returns its CID.
func (env *testEnv) createStemcell(ctx context.Context, tarball string) string {
	GinkgoHelper()
	properties, err := stemcellProperties(tarball)
	Expect(err).NotTo(HaveOccurred())
	return env.mustCall(ctx, "create_stemcell", "image", properties).Text()
}

// stemcellProperties reads the cloud_properties of a stemcell tarball.
func stemcellProperties(path string) (map[string]any, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("%s has no stemcell.MF: %w", path, err)
		}
		if filepath.Base(header.Name) != "stemcell.MF" {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		var manifest struct {
			CloudProperties map[string]any `json:"cloud_properties"`
		}
		err = yaml.Unmarshal(content, &manifest)
		return manifest.CloudProperties, err
	}
}

// testVM is a VM with a running agent.
type testVM struct {
	env     *testEnv
	cid     string
	address string
	agent   agentClient
}

// agentClient sends a director's messages to an agent, by HTTPS or through a message bus.
type agentClient interface {
	Call(ctx context.Context, method string, arguments ...any) (json.RawMessage, error)
}

// lastAddress counts the addresses returned by newAddress. Each VM of a run has a new address, and each test process has
// ten ranges of 250 addresses.
var lastAddress atomic.Int64

func newAddress() string {
	number := 20 + int(lastAddress.Add(1))
	return fmt.Sprintf("%s.%d.%d", embedded.BOSHNetworkPrefix, 118+10*GinkgoParallelProcess()+number/250, number%250+1)
}

func manualNetwork(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "netmask": "255.255.128.0",
		"gateway": embedded.BOSHGateway, "dns": []string{}, "default": []string{"dns", "gateway"}, "cloud_properties": map[string]any{}}}
}

// vmSpec describes a VM. Fields that are not set have the suite's defaults.
type vmSpec struct {
	stemcell, stemcellCID string // path of a light stemcell's tarball, or the CID
	group                 string
	properties, networks  map[string]any
	disks                 []string
	bus                   *director.Bus // message bus of the agent; nil for an agent with HTTPS
}

// createVM creates a VM on a manual network and waits until its agent responds.
func (env *testEnv) createVM(ctx context.Context) *testVM {
	GinkgoHelper()
	return env.createVMFromSpec(ctx, vmSpec{})
}

// createVMFromStemcell creates the VM from the stemcell in this tarball.
func (env *testEnv) createVMFromStemcell(ctx context.Context, stemcell string, properties map[string]any) *testVM {
	GinkgoHelper()
	return env.createVMFromSpec(ctx, vmSpec{stemcell: stemcell, properties: properties})
}

// createVMInGroup creates the VM in an instance group.
func (env *testEnv) createVMInGroup(ctx context.Context, group string, properties map[string]any) *testVM {
	GinkgoHelper()
	return env.createVMFromSpec(ctx, vmSpec{group: group, properties: properties})
}

// createVMOnNetworks creates the VM on these networks.
func (env *testEnv) createVMOnNetworks(ctx context.Context, networks map[string]any) *testVM {
	GinkgoHelper()
	return env.createVMFromSpec(ctx, vmSpec{networks: networks})
}

func (env *testEnv) createVMFromSpec(ctx context.Context, spec vmSpec) *testVM {
	GinkgoHelper()
	makeEnv := director.AgentEnv
	if spec.bus != nil {
		makeEnv = spec.bus.AgentEnv
	}
	agentEnv, err := makeEnv()
	Expect(err).NotTo(HaveOccurred())
	agentEnv["bosh"].(map[string]any)["group"] = spec.group
	agentID := fmt.Sprintf("%s-%d", env.namespace, env.vmCount.Add(1))
	if spec.networks == nil {
		spec.networks = manualNetwork(newAddress())
	}
	properties := map[string]any{}
	maps.Copy(properties, env.properties)
	maps.Copy(properties, spec.properties)
	if spec.stemcellCID == "" {
		spec.stemcellCID = env.createStemcell(ctx, cmp.Or(spec.stemcell, os.Getenv("E2E_STEMCELL")))
	}
	env.mustCall(ctx, "create_vm", agentID, spec.stemcellCID, properties, spec.networks, append([]string{}, spec.disks...), agentEnv)
	vm := &testVM{env: env, cid: "agent-" + agentID}
	vm.address = vm.pod(ctx).Status.PodIP
	vm.agent = director.Agent{Address: vm.address}
	if spec.bus != nil {
		vm.agent = spec.bus.Agent(agentID)
	}
	if env.prepareVM != nil {
		env.prepareVM(ctx, vm)
	}
	vm.waitForAgent(ctx)
	return vm
}

func (vm *testVM) waitForAgent(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		callCtx, cancel := context.WithTimeout(ctx, 5*time.Second) // an agent does not receive messages sent before it connected to its bus
		defer cancel()
		value, err := vm.agent.Call(callCtx, "ping")
		return string(value), err
	}).WithContext(ctx).Should(Equal(`"pong"`), func() string { return vm.logs(ctx) })
}

func (vm *testVM) logs(ctx context.Context) string {
	out, _ := vm.env.embedded.ControlPlane.Kubectl(ctx, "logs", "-n", vm.env.namespace, vm.cid, "--tail=30")
	return out
}

// callAgent sends a message that must succeed to the agent, and returns the value of its response.
func (vm *testVM) callAgent(ctx context.Context, method string, arguments ...any) string {
	GinkgoHelper()
	value, err := vm.agent.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	return string(value)
}

// run runs a shell command that must succeed in the VM, and returns its output.
func (vm *testVM) run(ctx context.Context, command string) string {
	GinkgoHelper()
	out, err := vm.tryRun(ctx, command)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func (vm *testVM) tryRun(ctx context.Context, command string) (string, error) {
	out, err := vm.env.embedded.ControlPlane.Kubectl(ctx, "exec", "-n", vm.env.namespace, vm.cid, "--", "bash", "-c", command)
	return strings.TrimSpace(out), err
}

func (vm *testVM) pod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	pod, err := vm.env.cluster.CoreV1().Pods(vm.env.namespace).Get(ctx, vm.cid, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// identity contains the properties that must not change while a VM runs.
type identity struct {
	UID, Container, Address, Data string
	Restarts                      int32
}

func (vm *testVM) identity(ctx context.Context) identity {
	GinkgoHelper()
	pod := vm.pod(ctx)
	return identity{
		UID: string(pod.UID), Container: pod.Status.ContainerStatuses[0].ContainerID, Address: pod.Status.PodIP,
		Restarts: pod.Status.ContainerStatuses[0].RestartCount,
		Data:     vm.run(ctx, "cat /var/vcap/data/marker 2>/dev/null || (echo $RANDOM$RANDOM | tee /var/vcap/data/marker)"),
	}
}

// attach attaches a disk like the director: attach_disk, then messages to the agent.
func (vm *testVM) attach(ctx context.Context, disk string) {
	GinkgoHelper()
	var hint map[string]any
	Expect(json.Unmarshal(vm.env.mustCall(ctx, "attach_disk", vm.cid, disk).Result, &hint)).To(Succeed())
	vm.callAgent(ctx, "add_persistent_disk", disk, hint)
	vm.callAgent(ctx, "mount_disk", disk)
}

// detach detaches a disk like the director: messages to the agent, then detach_disk.
func (vm *testVM) detach(ctx context.Context, disk string) {
	GinkgoHelper()
	vm.callAgent(ctx, "unmount_disk", disk)
	vm.callAgent(ctx, "remove_persistent_disk", disk)
	vm.env.mustCall(ctx, "detach_disk", vm.cid, disk)
}

func (env *testEnv) createDisk(ctx context.Context, sizeMiB int, properties map[string]any) string {
	GinkgoHelper()
	return env.mustCall(ctx, "create_disk", sizeMiB, env.diskProperties(properties), nil).Text()
}

func (env *testEnv) attachmentPod(ctx context.Context, disk string) *corev1.Pod {
	GinkgoHelper()
	pod, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// listNodeLoops lists the loop devices of the node's kernel, including those of other clusters, and the inodes of their files. It
// includes deleted files.
func (env *testEnv) listNodeLoops(ctx context.Context) string {
	GinkgoHelper()
	out, err := env.node.Shell(ctx, "losetup --list --noheadings --output NAME,BACK-INO")
	Expect(err).NotTo(HaveOccurred())
	return out
}

// listVolumeLoops returns the lines of listNodeLoops for the node's volumes.
func (env *testEnv) listVolumeLoops(ctx context.Context) []string {
	GinkgoHelper()
	volumeLoops := env.volumeLoopDevices(ctx)
	var lines []string
	for line := range strings.Lines(env.listNodeLoops(ctx)) {
		if slices.Contains(volumeLoops, strings.Fields(line)[0]) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// kubeletMounts returns the mount points in the kubelet's directory on the node.
func (env *testEnv) kubeletMounts(ctx context.Context) string {
	GinkgoHelper()
	isOther := func(mount string) bool { return !strings.Contains(mount, env.node.KubeletRoot()) }
	return strings.Join(slices.DeleteFunc(mountPoints(ctx, env.node), isOther), "\n")
}

// mountPoints returns all mount points of the node, sorted: the kubelet mounts the volumes of a Pod in any order.
func mountPoints(ctx context.Context, node nodeOperations) []string {
	GinkgoHelper()
	out, err := node.Shell(ctx, "findmnt --noheadings --list --output TARGET")
	Expect(err).NotTo(HaveOccurred())
	return slices.Sorted(slices.Values(strings.Fields(out)))
}

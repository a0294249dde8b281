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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// world is a namespace of its own on the embedded cluster, with a director that works in it.
type world struct {
	*director.Director
	namespace  string
	cluster    kubernetes.Interface
	embedded   *embedded.Cluster
	kubeconfig string
	machines   int
	place      // of its machines
}

var worlds int

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	return newWorldWith(ctx, nil)
}

// newWorldWith is newWorld with this configuration of the CPI beside the usual one.
func newWorldWith(ctx context.Context, configuration map[string]any) *world {
	GinkgoHelper()
	if onVMNode {
		return newWorldAt(ctx, (*world).onComputer, configuration)
	}
	return newWorldAt(ctx, (*world).onThisMachine, configuration)
}

// newWorldAt is newWorldWith with machines in this place.
func newWorldAt(ctx context.Context, at func(*world) place, configuration map[string]any) *world {
	GinkgoHelper()
	worlds++
	w := &world{
		embedded:  embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1),
		namespace: fmt.Sprintf("e2e-%d-%d", os.Getpid(), worlds),
	}
	w.place = at(w)
	w.kubeconfig = w.embedded.Kubeconfig()
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	w.cluster, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	_, err = w.cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		_, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	w.Director = w.directorWith(w.kubeconfig, configuration)
	DeferCleanup(w.remove)
	return w
}

// directorVia is a director whose CPI uses this kubeconfig.
func (w *world) directorVia(kubeconfig string) *director.Director {
	GinkgoHelper()
	return w.directorWith(kubeconfig, nil)
}

// directorWith is a director whose CPI uses this kubeconfig, and this configuration beside the usual one.
func (w *world) directorWith(kubeconfig string, more map[string]any) *director.Director {
	GinkgoHelper()
	configuration := map[string]any{
		"agent":    map[string]any{"mbus": director.AgentMbus, "blobstore": map[string]any{"provider": "local", "options": map[string]any{"blobstore_path": "/var/vcap/data/blobs"}}},
		"timeouts": w.timeouts,
	}
	maps.Copy(configuration, more)
	config := filepath.Join(GinkgoT().TempDir(), "cpi.json")
	Expect(director.WriteConfig(config, kubeconfig, w.namespace, configuration)).To(Succeed())
	program, err := filepath.Abs("../../bin/cpi")
	Expect(err).NotTo(HaveOccurred())
	return &director.Director{CPI: program, Config: config}
}

// remove ends all that the test left.
func (w *world) remove(ctx context.Context) {
	pods, err := w.cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		w.must(ctx, "delete_vm", pod.Name)
	}
	Expect(w.cluster.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{})).To(Succeed())
	Eventually(func(g Gomega) {
		left, err := w.cluster.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left.Items).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// must makes a call that has to succeed.
func (w *world) must(ctx context.Context, method string, arguments ...any) director.Response {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil(), "%s: %s", method, response.Stderr)
	return response
}

// fails makes a call that has to fail.
func (w *world) fails(ctx context.Context, method string, arguments ...any) director.Error {
	GinkgoHelper()
	response, err := w.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).NotTo(BeNil(), "%s succeeded: %s", method, response.Result)
	return *response.Error
}

// killing returns a function that makes a call with a process that is killed after its nth request. It
// returns false when the call sent fewer requests.
func (w *world) killing() func(ctx context.Context, n int, method string, arguments ...any) bool {
	GinkgoHelper()
	proxy, err := apiproxy.New(w.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(proxy.Kubeconfig(kubeconfig, w.namespace)).To(Succeed())
	doomed, kill := w.directorVia(kubeconfig).Mortal()
	return func(ctx context.Context, n int, method string, arguments ...any) bool {
		proxy.Reset(apiproxy.After(n, func() { _ = kill(os.Kill) }))
		_, err := doomed.Call(ctx, method, arguments...)
		return err != nil
	}
}

// stemcell returns the CID of the stemcell in this tarball.
func (w *world) stemcell(ctx context.Context, tarball string) string {
	GinkgoHelper()
	properties, err := stemcellProperties(tarball)
	Expect(err).NotTo(HaveOccurred())
	return w.must(ctx, "create_stemcell", "image", properties).Text()
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

// machine is a VM with a running agent.
type machine struct {
	w       *world
	cid     string
	address string
	agent   agent
}

// agent is what the director tells an agent, by HTTPS or by a message bus.
type agent interface {
	Call(ctx context.Context, method string, arguments ...any) (json.RawMessage, error)
}

// addresses of manual networks, a new one for each machine of a run; each process has ten times 250.
var addresses = 20

func newAddress() string {
	addresses++
	return fmt.Sprintf("%s.%d.%d", embedded.BOSHNetwork, 118+10*GinkgoParallelProcess()+addresses/250, addresses%250+1)
}

func manual(address string) map[string]any {
	return map[string]any{"default": map[string]any{"type": "manual", "ip": address, "netmask": "255.255.128.0",
		"gateway": embedded.BOSHGateway, "dns": []string{}, "default": []string{"dns", "gateway"}, "cloud_properties": map[string]any{}}}
}

// wanted is a VM to make; what is not set is the default of the suite.
type wanted struct {
	stemcell, stemcellCID string // the path of a light stemcell's tarball, or what create_stemcell answered
	group                 string
	properties, networks  map[string]any
	disks                 []string
	bus                   *director.Bus // the agent's; none for an agent that is told by HTTPS
}

// createMachine makes a VM on a manual network and waits until its agent answers.
func (w *world) createMachine(ctx context.Context) *machine {
	GinkgoHelper()
	return w.bringMachine(ctx, wanted{})
}

// createMachineFrom makes the VM from the stemcell in this tarball.
func (w *world) createMachineFrom(ctx context.Context, stemcell string, properties map[string]any) *machine {
	GinkgoHelper()
	return w.bringMachine(ctx, wanted{stemcell: stemcell, properties: properties})
}

// createMachineIn makes the VM in an instance group.
func (w *world) createMachineIn(ctx context.Context, group string, properties map[string]any) *machine {
	GinkgoHelper()
	return w.bringMachine(ctx, wanted{group: group, properties: properties})
}

// createMachineOn makes the VM on these networks.
func (w *world) createMachineOn(ctx context.Context, networks map[string]any) *machine {
	GinkgoHelper()
	return w.bringMachine(ctx, wanted{networks: networks})
}

func (w *world) bringMachine(ctx context.Context, vm wanted) *machine {
	GinkgoHelper()
	makeEnv := director.AgentEnv
	if vm.bus != nil {
		makeEnv = vm.bus.AgentEnv
	}
	env, err := makeEnv()
	Expect(err).NotTo(HaveOccurred())
	env["bosh"].(map[string]any)["group"] = vm.group
	w.machines++
	agent := fmt.Sprintf("%s-%d", w.namespace, w.machines)
	if vm.networks == nil {
		vm.networks = manual(newAddress())
	}
	properties := map[string]any{}
	maps.Copy(properties, w.properties)
	maps.Copy(properties, vm.properties)
	if vm.stemcellCID == "" {
		vm.stemcellCID = w.stemcell(ctx, cmp.Or(vm.stemcell, os.Getenv("E2E_STEMCELL")))
	}
	w.must(ctx, "create_vm", agent, vm.stemcellCID, properties, vm.networks, append([]string{}, vm.disks...), env)
	m := &machine{w: w, cid: "agent-" + agent}
	m.address = m.pod(ctx).Status.PodIP
	m.agent = director.Agent{Address: m.address}
	if vm.bus != nil {
		m.agent = vm.bus.Agent(agent)
	}
	if w.beforeAgent != nil {
		w.beforeAgent(ctx, m)
	}
	m.awaitAgent(ctx)
	return m
}

func (m *machine) awaitAgent(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second) // one that is not on its bus yet does not hear of it later
		defer cancel()
		value, err := m.agent.Call(asking, "ping")
		return string(value), err
	}).WithContext(ctx).Should(Equal(`"pong"`), func() string { return m.log(ctx) })
}

func (m *machine) log(ctx context.Context) string {
	out, _ := m.w.embedded.ControlPlane.Kubectl(ctx, "logs", "-n", m.w.namespace, m.cid, "--tail=30")
	return out
}

// tell makes an agent call that has to succeed.
func (m *machine) tell(ctx context.Context, method string, arguments ...any) string {
	GinkgoHelper()
	value, err := m.agent.Call(ctx, method, arguments...)
	Expect(err).NotTo(HaveOccurred())
	return string(value)
}

// run runs a shell command in the machine.
func (m *machine) run(ctx context.Context, command string) string {
	GinkgoHelper()
	out, err := m.try(ctx, command)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func (m *machine) try(ctx context.Context, command string) (string, error) {
	out, err := m.w.embedded.ControlPlane.Kubectl(ctx, "exec", "-n", m.w.namespace, m.cid, "--", "bash", "-c", command)
	return strings.TrimSpace(out), err
}

func (m *machine) pod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	pod, err := m.w.cluster.CoreV1().Pods(m.w.namespace).Get(ctx, m.cid, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// identity is what must never change while a machine lives.
type identity struct {
	UID, Container, Address, Data string
	Restarts                      int32
}

func (m *machine) identity(ctx context.Context) identity {
	GinkgoHelper()
	pod := m.pod(ctx)
	return identity{
		UID: string(pod.UID), Container: pod.Status.ContainerStatuses[0].ContainerID, Address: pod.Status.PodIP,
		Restarts: pod.Status.ContainerStatuses[0].RestartCount,
		Data:     m.run(ctx, "cat /var/vcap/data/marker 2>/dev/null || (echo $RANDOM$RANDOM | tee /var/vcap/data/marker)"),
	}
}

// attach does what the director does: attach_disk, then the agent's part.
func (m *machine) attach(ctx context.Context, disk string) {
	GinkgoHelper()
	var hint map[string]any
	Expect(json.Unmarshal(m.w.must(ctx, "attach_disk", m.cid, disk).Result, &hint)).To(Succeed())
	m.tell(ctx, "add_persistent_disk", disk, hint)
	m.tell(ctx, "mount_disk", disk)
}

// detach does the agent's part, then detach_disk.
func (m *machine) detach(ctx context.Context, disk string) {
	GinkgoHelper()
	m.tell(ctx, "unmount_disk", disk)
	m.tell(ctx, "remove_persistent_disk", disk)
	m.w.must(ctx, "detach_disk", m.cid, disk)
}

func (w *world) createDisk(ctx context.Context, sizeMiB int, properties map[string]any) string {
	GinkgoHelper()
	return w.must(ctx, "create_disk", sizeMiB, w.disks(properties), nil).Text()
}

func (w *world) attachment(ctx context.Context, disk string) *corev1.Pod {
	GinkgoHelper()
	pod, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// loops are the loop devices of the node's kernel, also other clusters', and the inodes of the files behind them,
// which may be deleted already.
func (w *world) loops(ctx context.Context) string {
	GinkgoHelper()
	out, err := w.node.Shell(ctx, "losetup --list --noheadings --output NAME,BACK-INO")
	Expect(err).NotTo(HaveOccurred())
	return out
}

// loopLines are the lines of loops for the node's own volumes.
func (w *world) loopLines(ctx context.Context) []string {
	GinkgoHelper()
	own := w.devices(ctx)
	var lines []string
	for line := range strings.Lines(w.loops(ctx)) {
		if slices.Contains(own, strings.Fields(line)[0]) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// mounts are the node's mounts below the kubelet's folder, by mount point.
func (w *world) mounts(ctx context.Context) string {
	GinkgoHelper()
	out, err := w.node.Shell(ctx, "findmnt --noheadings --list --output TARGET")
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, w.node.KubeletRoot()) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n")
}

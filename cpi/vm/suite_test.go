package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestVM(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	suite = t
	RunSpecs(t, "vm")
}

var suite *testing.T // for [memoryapi.InVirtualTime]

const (
	namespace   = "bosh"
	node        = "node-1"
	stemcellCID = "registry.example.org/stemcell@sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

type object = memoryapi.Object

// testEnv is an API server in memory, on which Pods start, volumes are bound, and helper Pods succeed at once, with a session for one call.
// A second call requires another session (newSession).
type testEnv struct {
	*Session
	api *memoryapi.Server
	// startVM is called with the status of each VM Pod that starts.
	startVM func(status *corev1.PodStatus)
	check   checkResult
}

// checkResult is the result of exclusivity checks.
type checkResult struct {
	exitCode int32
	message  string
}

// encodeResult returns the termination message with this result.
func encodeResult(result api.Result) string {
	GinkgoHelper()
	result.Version = api.Version
	encoded, err := result.Encode()
	Expect(err).NotTo(HaveOccurred())
	return string(encoded)
}

// findInUse makes the checks find a disk that is in use.
func (c *checkResult) findInUse() {
	GinkgoHelper()
	users := []api.User{{Process: 12, Name: "postgres", Path: "/var/vcap/store", Mounted: true}}
	*c = checkResult{api.ExitFailed, encodeResult(api.Result{Code: "disk-in-use", Message: users[0].String(), Users: users})}
}

func newTestEnv() *testEnv {
	env := &testEnv{api: memoryapi.New(), startVM: func(*corev1.PodStatus) {}}
	env.api.Simulate = env.simulate
	env.addNode(node)
	env.Session = env.newSession(time.Minute)
	return env
}

// simulate behaves like the controllers and kubelets of a cluster.
func (env *testEnv) simulate(obj *object) bool {
	if obj.GetKind() == "Pod" && memoryapi.EndEphemeralContainers(obj, env.check.exitCode, env.check.message) {
		return true
	}
	if !memoryapi.BindPVCs(obj) && !memoryapi.StartPods(node)(obj) {
		return false
	}
	switch obj.GetLabels()[manifest.LabelRole] {
	case manifest.RoleVM:
		var pod corev1.Pod
		memoryapi.FromObject(obj, &pod)
		env.startVM(&pod.Status)
		obj.Object = memoryapi.ToObject(&pod).Object
	case manifest.RoleReboot:
		memoryapi.Terminate(obj, 0)
		go env.restartVM(obj.GetOwnerReferences()[0].Name)
	}
	return true
}

// evictAttachment sets the status that the kubelet reports for an evicted Pod, and returns the UID of the disk's attachment Pod.
func (env *testEnv) evictAttachment(cid string) types.UID {
	env.updatePod(manifest.AttachmentName(cid), func(pod *corev1.Pod) {
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."}
	})
	return env.pod(manifest.AttachmentName(cid)).UID
}

// restartVM increments the restart count of the VM, as after a reboot.
func (env *testEnv) restartVM(vm string) {
	env.updatePod(vm, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount++ })
}

func (env *testEnv) addNode(name string) {
	env.api.Add("nodes", "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
}

// newSession returns a session for another call, which ends after this time.
func (env *testEnv) newSession(timeout time.Duration) *Session {
	GinkgoHelper()
	client, err := kube.NewForConfig(env.api.Config(), namespace, 0)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	DeferCleanup(cancel)
	return &Session{
		Call: &call.Call{
			Ctx: ctx, Client: client, ID: call.NewID(), Started: time.Now(), Director: "director",
			Subject: &call.Subject{}, Log: slog.New(slog.DiscardHandler), NodeImage: stemcell.NodeImage{Configured: stemcells.NodeImageReference},
		},
		Options: Options{Network: network.DefaultOptions(), AttachTimeout: time.Minute},
	}
}

// request returns a create_vm request for the agent, with cloud_properties in JSON.
func request(agent, properties string) Request {
	var networks network.Networks
	Expect(json.Unmarshal([]byte(`{"default": {"type": "dynamic"}}`), &networks)).To(Succeed())
	return Request{
		AgentID: agent, Stemcell: stemcellCID, Properties: json.RawMessage(properties), Networks: networks,
		Env: json.RawMessage(`{"bosh": {"group": "web"}}`),
	}
}

// recreate are the cloud_properties of a VM with disk_strategy: recreate.
const recreate = `{"disk_strategy": "recreate", "ephemeral_disk": {"size": 64}}`

// createVM creates a VM with these cloud_properties.
func (env *testEnv) createVM(properties string) string {
	GinkgoHelper()
	vm, err := env.Create(request("one", properties))
	Expect(err).NotTo(HaveOccurred())
	return vm
}

// createDisk creates a disk of 64 MiB with these cloud_properties.
func (env *testEnv) createDisk(properties string) string {
	GinkgoHelper()
	cid, err := (&disk.Session{Call: env.Call}).Create(64, json.RawMessage(properties), nil)
	Expect(err).NotTo(HaveOccurred())
	return cid
}

func (env *testEnv) pod(name string) *corev1.Pod {
	GinkgoHelper()
	var pod corev1.Pod
	env.api.Get("pods", namespace, name, &pod)
	return &pod
}

func (env *testEnv) pvc(name string) manifest.DiskPVC {
	GinkgoHelper()
	var pvc corev1.PersistentVolumeClaim
	env.api.Get("persistentvolumeclaims", namespace, name, &pvc)
	return manifest.DiskPVC{PVC: &pvc}
}

// updatePod changes a Pod as its node would.
func (env *testEnv) updatePod(name string, change func(pod *corev1.Pod)) {
	memoryapi.Update(env.api, "pods", namespace, name, &corev1.Pod{}, change)
}

// updatePVC changes a PVC as another client would.
func (env *testEnv) updatePVC(name string, change func(pvc *corev1.PersistentVolumeClaim)) {
	memoryapi.Update(env.api, "persistentvolumeclaims", namespace, name, &corev1.PersistentVolumeClaim{}, change)
}

// deletePod deletes a Pod as another client would.
func (env *testEnv) deletePod(name string) {
	GinkgoHelper()
	Expect(env.Pods.Delete(env.Ctx, env.pod(name))).To(Succeed())
}

// objects returns the names of all Pods, Secrets and Services.
func (env *testEnv) objects() (names []string) {
	for _, resource := range []string{"pods", "secrets", "services", "podtemplates", "poddisruptionbudgets"} {
		for _, name := range env.api.Names(resource) {
			names = append(names, resource+"/"+name)
		}
	}
	return names
}

// haveCode matches an error with this code.
func haveCode(code call.Code) OmegaMatcher { return Satisfy(code.Is) }

// attachmentOf returns the name of the disk's attachment Pod, in the format of objects.
func attachmentOf(disk string) string { return fmt.Sprint("pods/", manifest.AttachmentName(disk)) }

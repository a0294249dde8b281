package disk

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestDisk(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	suite = t
	RunSpecs(t, "disks")
}

var suite *testing.T // for [memoryapi.InVirtualTime]

const (
	namespace = "bosh"
	fast      = `{"storage_class": "fast"}` // expandable
	fixed     = `{"storage_class": "fixed"}`
)

// testEnv is an API server in memory, on which volumes and Pods become ready at once, with a session for one call.
type testEnv struct {
	*Session
	api *memoryapi.Server
}

func newTestEnv() *testEnv {
	env := &testEnv{api: memoryapi.New()}
	startPods := memoryapi.StartPods("node-1")
	env.api.Simulate = func(obj *memoryapi.Object) bool {
		return memoryapi.BindPVCs(obj) || startPods(obj)
	}
	for name, expandable := range map[string]bool{"fast": true, "fixed": false} {
		env.api.Add("storageclasses", "", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: &expandable})
	}
	env.Session = env.newSession(time.Minute)
	return env
}

// newSession returns a session for another call, which ends after this time.
func (env *testEnv) newSession(timeout time.Duration) *Session {
	GinkgoHelper()
	client, err := kube.NewForConfig(env.api.Config(), namespace, 0)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	DeferCleanup(cancel)
	return &Session{Call: &call.Call{
		Ctx: ctx, Client: client, ID: call.NewID(), Started: time.Now(), Director: "director",
		Subject: &call.Subject{}, Log: slog.New(slog.DiscardHandler), NodeImage: stemcell.NodeImage{Configured: stemcells.NodeImageReference},
	}}
}

// createDisk creates a disk of 64 MiB.
func (env *testEnv) createDisk(properties string) string {
	GinkgoHelper()
	cid, err := env.Create(64, json.RawMessage(properties), nil)
	Expect(err).NotTo(HaveOccurred())
	return cid
}

// createVM creates a running VM.
func (env *testEnv) createVM(name string) manifest.VMPod {
	GinkgoHelper()
	pod, err := env.Pods.Create(env.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
			manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelDirector: "director",
			manifest.LabelRole: manifest.RoleVM, manifest.LabelVM: name,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "vm", Image: "stemcell"}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return manifest.VMPod{Pod: pod}
}

// attach makes the VM the owner of the disk, with an attachment Pod.
func (env *testEnv) attach(cid string, vm manifest.VMPod) manifest.AttachmentPod {
	GinkgoHelper()
	pvc, err := env.GetPVC(cid)
	Expect(err).NotTo(HaveOccurred())
	desired := manifest.Attachment{Disk: cid, SizeMiB: 64, Filesystem: "ext4", Mode: pvc.VolumeMode(), VM: vm, Director: "director"}.Pod()
	pod, err := env.Pods.Create(env.Ctx, env.PodOptions.ApplyToHelperPod(desired.Pod))
	Expect(err).NotTo(HaveOccurred())
	_, attachment, err := env.AssignAndStart(pvc, manifest.AttachmentPod{Pod: pod}, func(current manifest.DiskPVC) error {
		return env.CheckFreeFor(current, vm.Name)
	})
	Expect(err).NotTo(HaveOccurred())
	return attachment
}

// updatePVC changes the PVC of the disk as another client would.
func (env *testEnv) updatePVC(cid string, change func(pvc *corev1.PersistentVolumeClaim)) {
	memoryapi.Update(env.api, "persistentvolumeclaims", namespace, cid, &corev1.PersistentVolumeClaim{}, change)
}

// pvc returns the PVC of the disk.
func (env *testEnv) pvc(cid string) manifest.DiskPVC {
	GinkgoHelper()
	pvc, err := env.read(cid)
	Expect(err).NotTo(HaveOccurred())
	return pvc
}

// haveCode matches an error with this code.
func haveCode(code call.Code) OmegaMatcher {
	return Satisfy(code.Is)
}

// updatePod changes a Pod as its node would.
func updatePod(env *testEnv, name string, change func(pod *corev1.Pod)) {
	memoryapi.Update(env.api, "pods", namespace, name, &corev1.Pod{}, change)
}

type object = memoryapi.Object

func quantity(mebibytes int64) resource.Quantity {
	return *resource.NewQuantity(mebibytes<<20, resource.BinarySI)
}

// reportExpansion reports a status of a PVC that requests more than its capacity. It returns whether it changed the PVC.
func reportExpansion(obj *object, status corev1.PersistentVolumeClaimStatus) bool {
	var pvc corev1.PersistentVolumeClaim
	memoryapi.FromObject(obj, &pvc)
	requested, capacity := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if capacity.Cmp(requested) >= 0 || len(pvc.Status.Conditions)+len(pvc.Status.AllocatedResources) > 0 {
		return false
	}
	status.Phase, status.Capacity = pvc.Status.Phase, pvc.Status.Capacity
	pvc.Status = status
	obj.Object = memoryapi.ToObject(&pvc).Object
	return true
}

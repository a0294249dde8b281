package disk

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("snapshot_disk", func() {
	var env *testEnv
	var cid string
	var status map[string]any // of snapshots

	BeforeEach(func() {
		env = newTestEnv()
		cid = env.createDisk(fast)
		env.api.Add("persistentvolumes", "", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-" + cid},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi"}}}})
		status = map[string]any{"readyToUse": true}
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool {
			if _, reported := obj.Object["status"]; obj.GetKind() != "VolumeSnapshot" || reported || status == nil {
				return simulate(obj)
			}
			return unstructured.SetNestedMap(obj.Object, status, "status") == nil
		}
	})

	snapshotLabels := func(cid string) map[string]string {
		GinkgoHelper()
		snapshot, err := env.VolumeSnapshots().Get(env.Ctx, cid)
		Expect(err).NotTo(HaveOccurred())
		return snapshot.Labels
	}

	It("creates a snapshot with the director's metadata, and completes it when it is ready", func() {
		snapshot, err := env.Snapshot(cid, map[string]any{"deployment": "cf"})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshotLabels(snapshot)).To(And(HaveKeyWithValue(manifest.Prefix+"deployment", "cf"), Not(HaveKey(manifest.LabelIncomplete))))
		Expect(env.DeleteSnapshot(snapshot)).To(Succeed())
		Expect(env.api.Names("volumesnapshots")).To(BeEmpty())
		Expect(env.DeleteSnapshot(snapshot)).To(Succeed(), "it is gone")
	})

	It("does not delete a snapshot of another application", func() {
		foreign := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}}
		foreign.SetName("snapshot-1")
		env.api.Add("volumesnapshots", "bosh", foreign)
		Expect(env.DeleteSnapshot("snapshot-1")).To(Succeed())
		Expect(env.api.Names("volumesnapshots")).To(ConsistOf("snapshot-1"))
	})

	It("flushes the node of an attached disk first", func() {
		env.attach(cid, env.createVM("vm-1"))
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool {
			changed := simulate(obj)
			if changed && strings.Contains(obj.GetName(), "flush") {
				memoryapi.Terminate(obj, 0)
			}
			return changed
		}
		_, err := env.Snapshot(cid, nil)
		Expect(err).NotTo(HaveOccurred())
		var flushed bool
		for _, request := range env.api.Requests() {
			flushed = flushed || strings.HasPrefix(request, "POST") && strings.HasSuffix(request, "/pods")
			Expect(flushed || !strings.HasSuffix(request, "/volumesnapshots")).To(BeTrue())
		}
	})

	DescribeTable("leaves no snapshot if", func(code call.Code, message string, prepare func()) {
		prepare()
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			_, err := env.Snapshot(cid, nil)
			Expect(err).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		})
		Expect(env.api.Names("volumesnapshots")).To(BeEmpty())
	},
		Entry("the disk does not exist", call.CodeDiskNotFound, "disk-none", func() { cid = "disk-none" }),
		Entry("the disk has no volume", call.CodeDiskWithoutVolume, "attach it to a VM first", func() {
			env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
				env.api.Simulate = nil
				pvc.Status.Phase = corev1.ClaimPending
			})
		}),
		Entry("the volume is not of a CSI driver", call.CodeSnapshotUnsupported, "not provisioned by a CSI driver", func() {
			cid = env.createDisk(fast)
			env.api.Add("persistentvolumes", "", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-" + cid}})
		}),
		Entry("the API is not installed", call.CodeSnapshotUnsupported, "is not installed", func() {
			env.api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "snapshot.storage.k8s.io") {
					http.NotFound(w, r)
					return true
				}
				return false
			}
		}),
		Entry("the driver reports an error until the timeout", call.CodeSnapshotTimeout, "quota exceeded", func() {
			status = map[string]any{"error": map[string]any{"message": "quota exceeded"}}
		}),
		Entry("nothing reports a status", call.CodeSnapshotTimeout, "check that it is running", func() {
			status = nil
		}),
	)
})

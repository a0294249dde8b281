package integration

import (
	"cmp"
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// What the suite's own storage does: volumes of nothing for each claim, expansion, and snapshots that
// are ready at once.
const storageResources = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: integration.test/nothing
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: growing}
provisioner: integration.test/nothing
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshots.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  scope: Namespaced
  names: {kind: VolumeSnapshot, plural: volumesnapshots, singular: volumesnapshot, listKind: VolumeSnapshotList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

var volumeSnapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// serveStorage simulates the provisioner, the resizer and the snapshot controller until the context
// ends.
func serveStorage(ctx context.Context, cluster kubernetes.Interface, extensions dynamic.Interface) {
	defer GinkgoRecover()
	claims, err := cluster.CoreV1().PersistentVolumeClaims("").Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	defer claims.Stop()
	snapshots, err := extensions.Resource(volumeSnapshots).Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	defer snapshots.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-claims.ResultChan():
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok {
				serveClaim(ctx, cluster, claim)
			}
		case event := <-snapshots.ResultChan():
			snapshot, ok := event.Object.(metav1.Object)
			if ok && snapshot.GetAnnotations()["bosh.cloudfoundry.org/fails"] == "" {
				status, err := json.Marshal(map[string]any{"status": snapshotStatus(event.Object)})
				Expect(err).NotTo(HaveOccurred())
				_, _ = extensions.Resource(volumeSnapshots).Namespace(snapshot.GetNamespace()).Patch(ctx, snapshot.GetName(), types.MergePatchType,
					status, metav1.PatchOptions{}, "status")
			}
		}
	}
}

// snapshotStatus is what the snapshot controller says: the class "none" is not there.
func snapshotStatus(snapshot any) map[string]any {
	object, _ := snapshot.(*unstructured.Unstructured)
	if class, _, _ := unstructured.NestedString(object.Object, "spec", "volumeSnapshotClassName"); class == "none" {
		return map[string]any{"error": map[string]any{
			"message": `Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io "none" not found`,
		}}
	}
	return map[string]any{"readyToUse": true}
}

// serveClaim makes the volume of a claim for which the scheduler has chosen a node, and expands it. The
// same claim may be seen several times; a request that comes too late changes nothing.
func serveClaim(ctx context.Context, cluster kubernetes.Interface, claim *corev1.PersistentVolumeClaim) {
	wanted, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	switch {
	case claim.Status.Phase == corev1.ClaimPending && claim.Annotations["volume.kubernetes.io/selected-node"] != "":
		_, _ = cluster.CoreV1().PersistentVolumes().Create(ctx, volumeFor(claim), metav1.CreateOptions{})
	case claim.Status.Phase == corev1.ClaimBound && wanted.Cmp(has) > 0:
		patch, err := json.Marshal(map[string]any{"status": expansion(claim, wanted)})
		Expect(err).NotTo(HaveOccurred())
		_, _ = cluster.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
}

// expansion is the status of a claim whose volume is asked to grow. The claim's annotations say when it
// does not: above test/most that is infeasible, with test/slow it takes for ever, and with test/at-node the
// node has its part to do, before which no further expansion begins.
func expansion(claim *corev1.PersistentVolumeClaim, wanted resource.Quantity) map[string]any {
	size := map[string]any{"storage": wanted.String()}
	most, limited := claim.Annotations["test/most"]
	switch {
	case claim.Annotations["test/slow"] != "", len(claim.Status.AllocatedResourceStatuses) > 0 && claim.Annotations["test/at-node"] != "":
		return map[string]any{}
	case limited && wanted.Cmp(resource.MustParse(most)) > 0:
		return map[string]any{
			"allocatedResources": size, "allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimControllerResizeInfeasible},
			"conditions": []any{map[string]any{"type": corev1.PersistentVolumeClaimControllerResizeError, "status": "True", "message": "no more than " + most}},
		}
	case claim.Annotations["test/at-node"] != "":
		return map[string]any{"allocatedResources": size, "allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizePending}}
	}
	return map[string]any{"capacity": size, "allocatedResources": size, "allocatedResourceStatuses": nil, "conditions": nil}
}

// volumeFor is a volume that can be reached from the node that the scheduler chose; from any, when the claim's
// annotation test/driver names its driver. No CSI driver has made that of a claim with the annotation test/local.
func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	driver := claim.Annotations["test/driver"]
	source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: cmp.Or(driver, "integration.test"), VolumeHandle: string(claim.UID),
	}}
	reachable := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: "test/name", Operator: corev1.NodeSelectorOpIn, Values: []string{claim.Annotations["volume.kubernetes.io/selected-node"]},
		}},
	}}}}
	if driver != "" {
		reachable = nil
	}
	if claim.Annotations["test/local"] != "" {
		source = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/volumes/" + claim.Name}}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-" + string(claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:      claim.Spec.AccessModes,
			VolumeMode:       claim.Spec.VolumeMode,
			StorageClassName: *claim.Spec.StorageClassName,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: source,
			NodeAffinity:           reachable,
		},
	}
}

var _ = Describe("A disk's volume", func() {
	var (
		w  world
		vm string
	)
	BeforeEach(func(ctx context.Context) { w, vm = newWorldWithVM(ctx) })

	It("grows with resize_disk, and not again when the call is repeated", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "volume_mode": "Block"})
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).Status.Capacity.Storage().String()).To(Equal("128Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "128"))
		grown := w.claim(ctx, disk).ResourceVersion
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(grown))
	})

	It("that cannot grow, or would have to shrink, is left as it is", func(ctx context.Context) {
		fixed, growing := w.usedDisk(ctx, vm, map[string]any{}), w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		for disk, size := range map[string]int{fixed: 128, growing: 32} {
			before := w.claim(ctx, disk).ResourceVersion
			Expect(w.fails(ctx, "resize_disk", disk, size).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(before))
		}
		Expect(w.fails(ctx, "resize_disk", "disk-none", 128).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	Describe("whose expansion fails", func() {
		for why, annotations := range map[string]map[string]any{
			"because it is infeasible": {"test/most": "170Mi"},
			"for lack of time":         {"test/slow": "yes"},
		} {
			for method, arguments := range map[string][]any{"resize_disk": {}, "update_disk": {map[string]any{"storage_class": "growing"}}} {
				It(why+" leaves the disk with the size it has, after "+method, func(ctx context.Context) {
					disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": annotations})
					short := w
					short.Director = w.withTimeouts(map[string]any{"other": "2s", "update_disk": "2s"})
					for range 2 {
						Expect(short.fails(ctx, method, append([]any{disk, 128}, arguments...)...).Message).To(ContainSubstring("expanded to 200Mi"))
						Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "64"))
					}
					w.must(ctx, method, append([]any{disk, 64}, arguments...)...)
					w.must(ctx, "attach_disk", vm, disk)
					attachment, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(attachment.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "SIZE_MIB", Value: "64"}))
				})
			}
		}

		It("grows to a smaller size", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/most": "170Mi"}})
			Expect(w.fails(ctx, "resize_disk", disk, 128).Message).To(And(ContainSubstring("cannot be expanded to 200Mi"), ContainSubstring("no more than 170Mi")))
			w.must(ctx, "resize_disk", disk, 96)
			Expect(w.claim(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("166Mi"))
			Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "96"))
		})
	})

	It("is not asked to shrink when it grew more than is wanted", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		_, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, disk, types.MergePatchType,
			[]byte(`{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.claim(ctx, disk).Status.Capacity.Storage().String() }).WithContext(ctx).Should(Equal("200Mi"))
		w.must(ctx, "resize_disk", disk, 96)
		Expect(w.claim(ctx, disk).Spec.Resources.Requests.Storage().String()).To(Equal("200Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "96"))
	})

	It("has grown when only the node's part is left, but does not grow again before that is done", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing", "annotations": map[string]any{"test/at-node": "yes"}})
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "128"))
		w.Director = w.withTimeouts(map[string]any{"other": "2s"})
		Expect(w.fails(ctx, "resize_disk", disk, 256).Message).To(ContainSubstring("was not expanded to 336Mi"))
		Expect(w.claim(ctx, disk).Annotations).To(HaveKeyWithValue(sizeOf, "128"))
	})

	It("does not grow while the disk is attached", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.fails(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring(vm))
	})

	It("can be snapshot while the disk is attached, and become a new disk", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		w.must(ctx, "attach_disk", vm, disk)
		snapshot := w.must(ctx, "snapshot_disk", disk, map[string]any{"deployment": "cf", "index": 0}).Text()
		pods, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=flush"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).NotTo(ContainElement(HaveField("DeletionTimestamp", BeNil())), "what has flushed the disk is gone, or about to be")
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		restored := w.must(ctx, "create_disk", 64, map[string]any{"snapshot": snapshot}, nil).Text()
		Expect(w.claim(ctx, restored).Spec.DataSource).To(And(HaveField("Kind", "VolumeSnapshot"), HaveField("Name", snapshot)))
		w.must(ctx, "detach_disk", vm, disk)
		w.must(ctx, "delete_snapshot", snapshot)
		w.must(ctx, "delete_snapshot", snapshot)
	})

	It("that does not exist cannot be snapshot", func(ctx context.Context) {
		Expect(w.fails(ctx, "snapshot_disk", "disk-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(w.fails(ctx, "snapshot_disk", w.createDisk(ctx), map[string]any{}).Message).To(ContainSubstring("no volume yet"))
	})

	It("draws the machine that is to get it to where it can be reached", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		node := w.claim(ctx, disk).Annotations["volume.kubernetes.io/selected-node"]
		for _, agent := range []string{"near-1", "near-2", "near-3"} {
			w.must(ctx, "create_vm", agent, stemcellCID, map[string]any{}, onDynamic(), []string{disk, "disk-none"}, map[string]any{})
			pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Spec.NodeName).To(Equal(node))
		}
	})
})

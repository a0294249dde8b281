package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"bosh-kubernetes-cpi/cpi/preflight"
)

// patchNodes patches node-a and node-b, and reverts the changes after the spec.
func patchNodes(ctx context.Context, patch string, subresources ...string) {
	GinkgoHelper()
	nodes := cluster.CoreV1().Nodes()
	for _, name := range []string{"node-a", "node-b"} {
		original, err := nodes.Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		changed, err := nodes.Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		Expect(err).NotTo(HaveOccurred())
		revert := diffNodes(changed, original)
		DeferCleanup(func(ctx context.Context) {
			_, err := nodes.Patch(ctx, name, types.StrategicMergePatchType, revert, metav1.PatchOptions{}, subresources...)
			Expect(err).NotTo(HaveOccurred())
		})
	}
}

// diffNodes returns the patch between two states of a node, without the fields that the API server sets with every change.
func diffNodes(from, to *corev1.Node) []byte {
	GinkgoHelper()
	raw := func(node *corev1.Node) []byte {
		node = node.DeepCopy()
		node.ResourceVersion, node.ManagedFields = "", nil
		content, err := json.Marshal(node)
		Expect(err).NotTo(HaveOccurred())
		return content
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(raw(from), raw(to), corev1.Node{})
	Expect(err).NotTo(HaveOccurred())
	return patch
}

// csiStorageManifests are a second default StorageClass and the CRD VolumeSnapshotClass. The newer default StorageClass takes effect.
const csiStorageManifests = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: of-driver, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: csi.integration.test
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshotclasses.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  scope: Cluster
  names: {kind: VolumeSnapshotClass, plural: volumesnapshotclasses, singular: volumesnapshotclass, listKind: VolumeSnapshotClassList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// calicoResource returns a minimal CRD for a kind of Calico. The tests on a real node use Calico's CRDs.
func calicoResource(kind string) string {
	singular := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s, listKind: %[1]sList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, kind, singular)
}

// Serial, because these specs change cluster-scoped objects of all specs.
var _ = Describe("Preflight checks of nodes and storage", Serial, func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		env.grantCheckPermissions(ctx)
	})
	checkResults := func(ctx context.Context) map[string]preflight.Result { return runCheck(ctx, env.Director).results }

	It("fail if no node accepts VMs", func(ctx context.Context) {
		Expect(checkResults(ctx)["nodes"]).To(matchResult(preflight.OK, "2 of 2 nodes accept VMs", ""))
		patchNodes(ctx, `{"spec":{"unschedulable":true}}`)
		report := runCheck(ctx, env.Director)
		Expect(report.results["nodes"]).To(matchResult(preflight.Fails, "0 of 2 nodes accept VMs", "not cordoned"))
		Expect(report.status).To(Equal(1))
	})

	It("count the Pods for which the nodes have capacity", func(ctx context.Context) {
		patchNodes(ctx, `{"status":{"allocatable":{"pods":"0"}}}`, "status")
		Expect(checkResults(ctx)["pod-slots"]).To(matchResult(preflight.Fails, "capacity for 0 more Pods on 2 nodes", "maxPods"))
	})

	It("recognize the network plugin by node annotations, and name the Pod annotation that it reads", func(ctx context.Context) {
		patchNodes(ctx, `{"metadata":{"annotations":{"projectcalico.org/IPv4Address":"192.0.2.1/24"}}}`)
		Expect(checkResults(ctx)["addresses"]).To(matchResult(preflight.OK, "the network plugin is Calico (annotations or labels of nodes), which reads cni.projectcalico.org/ipAddrs", ""))
		patchNodes(ctx, `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"192.0.2.1"}}}`)
		Expect(checkResults(ctx)["addresses"]).To(matchResult(preflight.Warns, "the network plugin is flannel (annotations or labels of nodes), which reads no annotation", "CNI shim"))
	})

	It("list the reserved ranges, and warn if there are none", func(ctx context.Context) {
		Expect(plane.Apply(ctx, calicoResource("IPPool")+"---"+calicoResource("IPReservation"))).To(Succeed())
		Eventually(checkResults).WithContext(ctx).Should(HaveKeyWithValue("address-pools", matchResult(preflight.Warns, "reserved ranges: none", "create a reserved range")))
		Expect(plane.Apply(ctx, `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: bosh}, spec: {cidr: 10.77.0.0/24, nodeSelector: "!all()"}}`)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, "delete", "ippools.crd.projectcalico.org", "bosh")
			Expect(err).NotTo(HaveOccurred())
		})
		Expect(checkResults(ctx)["address-pools"]).To(matchResult(preflight.OK, "reserved ranges: 10.77.0.0/24 (IPPool bosh)", ""))
	})

	It("inspect the CSI driver, the VolumeSnapshotClass and the volume limits of the default StorageClass", func(ctx context.Context) {
		Expect(checkResults(ctx)).To(And(
			HaveKeyWithValue("csi-driver", matchResult(preflight.Warns, "CSIDriver integration.test/nothing of StorageClass standard does not exist", "install it")),
			HaveKeyWithValue("snapshot-class", matchResult(preflight.Warns, "no VolumeSnapshotClasses", "create-snapshot")),
			HaveKeyWithValue("attach-limits", matchResult(preflight.Warns, "no node reports the driver integration.test/nothing", "driver's Pods")),
		))
		Expect(plane.Apply(ctx, csiStorageManifests)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, "delete", "storageclass/of-driver", "crd/volumesnapshotclasses.snapshot.storage.k8s.io")
			Expect(err).NotTo(HaveOccurred())
		})
		Eventually(checkResults).WithContext(ctx).Should(And(
			HaveKeyWithValue("storage-classes", matchResult(preflight.OK, "of-driver (the default, csi.integration.test)", "")),
			HaveKeyWithValue("csi-driver", matchResult(preflight.Warns, "CSIDriver csi.integration.test of StorageClass of-driver does not exist", "install it")),
			HaveKeyWithValue("snapshot-class", matchResult(preflight.Fails, "there is no VolumeSnapshotClass of csi.integration.test", "create one")),
		))

		drivers := cluster.StorageV1().CSIDrivers()
		_, err := drivers.Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.integration.test"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(drivers.Delete(ctx, "csi.integration.test", metav1.DeleteOptions{})).To(Succeed())
		})
		setVolumeLimit(ctx, "node-a", 1)
		Expect(plane.Apply(ctx, `{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: fast}, driver: csi.integration.test, deletionPolicy: Delete}`)).To(Succeed())
		Expect(checkResults(ctx)).To(And(
			HaveKeyWithValue("csi-driver", matchResult(preflight.OK, "csi.integration.test is installed", "")),
			HaveKeyWithValue("snapshot-class", matchResult(preflight.Fails, "no VolumeSnapshotClass of csi.integration.test is the default", "annotate fast with snapshot.storage.kubernetes.io/is-default-class=true")),
			HaveKeyWithValue("attach-limits", matchResult(preflight.Warns, "capacity for 1 more volumes of csi.integration.test on 1 nodes, for 1 on node-a", "add nodes")),
		))

		volumeAttachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.integration.test", NodeName: "node-a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("some")}}}
		_, err = cluster.StorageV1().VolumeAttachments().Create(ctx, volumeAttachment, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.StorageV1().VolumeAttachments().Delete(ctx, "first", metav1.DeleteOptions{})).To(Succeed())
		})
		Expect(checkResults(ctx)["attach-limits"]).To(matchResult(preflight.Fails, "capacity for 0 more volumes", "add nodes"))
	})

	It("fail if there is no default StorageClass", func(ctx context.Context) {
		setDefaultAnnotation := func(ctx context.Context, value string) {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"storageclass.kubernetes.io/is-default-class": value}}})
			Expect(err).NotTo(HaveOccurred())
			_, err = cluster.StorageV1().StorageClasses().Patch(ctx, "standard", types.MergePatchType, patch, metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		setDefaultAnnotation(ctx, "false")
		DeferCleanup(func(ctx context.Context) { setDefaultAnnotation(ctx, "true") })
		Eventually(checkResults).WithContext(ctx).Should(HaveKeyWithValue("storage-classes", matchResult(preflight.Fails, "no default StorageClass", "is-default-class=true")))
	})
})

// setVolumeLimit limits the number of volumes of the driver on a node.
func setVolumeLimit(ctx context.Context, node string, volumes int32) {
	GinkgoHelper()
	nodes := cluster.StorageV1().CSINodes()
	found, err := cluster.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = nodes.Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node, UID: found.UID}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: "csi.integration.test", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &volumes}}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(nodes.Delete(ctx, node, metav1.DeleteOptions{})).To(Succeed()) })
}

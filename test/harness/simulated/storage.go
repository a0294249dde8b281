package simulated

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// StorageResources are the manifests of three StorageClasses and of the CustomResourceDefinition of VolumeSnapshots. ServeStorage
// provisions the volumes. Volumes of the classes growing and immediate can be expanded. Volumes of the class immediate are provisioned
// without a consumer, and are accessible from any node.
const StorageResources = `
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
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: immediate}
provisioner: integration.test/nothing
volumeBindingMode: Immediate
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

// AttributesClasses are the manifests of three VolumeAttributesClasses. ServeStorage applies all but the class infeasible.
const AttributesClasses = `
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: integration.test
parameters: {iops: "3000"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: integration.test
parameters: {iops: "9000"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: infeasible}
driverName: integration.test
parameters: {iops: "0"}
`

// VolumeSnapshots is the resource of VolumeSnapshots.
var VolumeSnapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// ServeStorage simulates the provisioner, the resizer and the snapshot controller until the context is canceled.
func ServeStorage(ctx context.Context, cluster kubernetes.Interface, extensions dynamic.Interface) {
	go watchUntilDone(ctx, cluster.CoreV1().PersistentVolumeClaims("").Watch, func(event watch.Event) {
		if pvc, ok := event.Object.(*corev1.PersistentVolumeClaim); ok {
			servePVC(ctx, cluster, pvc)
		}
	})
	watchUntilDone(ctx, extensions.Resource(VolumeSnapshots).Watch, func(event watch.Event) { serveSnapshot(ctx, extensions, event.Object) })
}

// serveSnapshot sets the status of a VolumeSnapshot, unless it has the annotation bosh.cloudfoundry.org/fails.
func serveSnapshot(ctx context.Context, extensions dynamic.Interface, object any) {
	snapshot, ok := object.(metav1.Object)
	if !ok || snapshot.GetAnnotations()["bosh.cloudfoundry.org/fails"] != "" {
		return
	}
	_, _ = extensions.Resource(VolumeSnapshots).Namespace(snapshot.GetNamespace()).Patch(ctx, snapshot.GetName(), types.MergePatchType,
		statusPatch(snapshotStatus(object)), metav1.PatchOptions{}, "status")
}

// snapshotStatus returns the status that the snapshot controller sets. The VolumeSnapshotClass "none" does not exist.
func snapshotStatus(snapshot any) map[string]any {
	object, _ := snapshot.(*unstructured.Unstructured)
	if class, _, _ := unstructured.NestedString(object.Object, "spec", "volumeSnapshotClassName"); class == "none" {
		return map[string]any{"error": map[string]any{
			"message": `Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io "none" not found`,
		}}
	}
	return map[string]any{"readyToUse": true}
}

// servePVC creates the volume of a PVC after the scheduler selected a node, expands the volume, and applies its VolumeAttributesClass. It
// ignores errors of the API server, because it may get the same PVC several times.
func servePVC(ctx context.Context, cluster kubernetes.Interface, pvc *corev1.PersistentVolumeClaim) {
	requested, capacity := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	switch {
	case pvc.Status.Phase == corev1.ClaimPending && (selectedNode(pvc) != "" || hasStorageClass(pvc, immediateClass)):
		_, _ = cluster.CoreV1().PersistentVolumes().Create(ctx, newVolume(pvc), metav1.CreateOptions{})
	case pvc.Status.Phase == corev1.ClaimBound && requested.Cmp(capacity) > 0:
		patchStatus(ctx, cluster, pvc, expansionStatus(pvc, requested))
	case pvc.Status.Phase == corev1.ClaimBound && pvc.Spec.VolumeAttributesClassName != nil:
		if status := modificationStatus(pvc, *pvc.Spec.VolumeAttributesClassName); status != nil {
			patchStatus(ctx, cluster, pvc, status)
		}
	}
}

// patchStatus merges conditions by type, as the resizer does. If it replaced the condition of another controller, that controller would
// add it again, without end.
func patchStatus(ctx context.Context, cluster kubernetes.Interface, pvc *corev1.PersistentVolumeClaim, status map[string]any) {
	pvcs := cluster.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	_, _ = pvcs.Patch(ctx, pvc.Name, types.StrategicMergePatchType, statusPatch(status), metav1.PatchOptions{}, "status")
}

// modificationStatus returns the status of a PVC that requests the VolumeAttributesClass, or nil if the status is up to date.
func modificationStatus(pvc *corev1.PersistentVolumeClaim, class string) map[string]any {
	reported, current := pvc.Status.ModifyVolumeStatus, pvc.Status.CurrentVolumeAttributesClassName
	switch {
	case reported == nil && current != nil && *current == class, reported != nil && reported.TargetVolumeAttributesClassName == class:
		return nil
	case class == "infeasible":
		return map[string]any{
			"modifyVolumeStatus": map[string]any{
				"targetVolumeAttributesClassName": class, "status": corev1.PersistentVolumeClaimModifyVolumeInfeasible,
			},
			"conditions": []any{map[string]any{
				"type": corev1.PersistentVolumeClaimVolumeModifyVolumeError, "status": "True", "message": "iops out of range",
			}},
		}
	}
	return map[string]any{"currentVolumeAttributesClassName": class, "modifyVolumeStatus": nil, "conditions": nil}
}

// expansionStatus returns the status of a PVC that requests an expansion. Annotations of the PVC select failures. Beyond the size in
// test/most, the expansion is infeasible. With test/slow, it never ends. With test/at-node, it waits for the node, and no further
// expansion begins before that.
func expansionStatus(pvc *corev1.PersistentVolumeClaim, requested resource.Quantity) map[string]any {
	size := map[string]any{"storage": requested.String()}
	limit, limited := pvc.Annotations["test/most"]
	switch {
	case pvc.Annotations["test/slow"] != "", len(pvc.Status.AllocatedResourceStatuses) > 0 && pvc.Annotations["test/at-node"] != "":
		return map[string]any{}
	case limited && requested.Cmp(resource.MustParse(limit)) > 0:
		return map[string]any{
			"allocatedResources":        size,
			"allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimControllerResizeInfeasible},
			"conditions": []any{map[string]any{
				"type": corev1.PersistentVolumeClaimControllerResizeError, "status": "True", "message": "no more than " + limit,
			}},
		}
	case pvc.Annotations["test/at-node"] != "":
		return map[string]any{
			"allocatedResources":        size,
			"allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizePending},
		}
	}
	return map[string]any{"capacity": size, "allocatedResources": size, "allocatedResourceStatuses": nil, "conditions": nil}
}

const immediateClass = "immediate"

func hasStorageClass(pvc *corev1.PersistentVolumeClaim, name string) bool {
	return pvc.Spec.StorageClassName != nil && *pvc.Spec.StorageClassName == name
}

func selectedNode(pvc *corev1.PersistentVolumeClaim) string {
	return pvc.Annotations["volume.kubernetes.io/selected-node"]
}

// newVolume returns a volume that is accessible only from the node selected by the scheduler. It is accessible from all nodes if no node
// was selected, or if the PVC names a CSI driver in the annotation test/driver. With the annotation test/local, the volume has no CSI
// driver.
func newVolume(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	driver := pvc.Annotations["test/driver"]
	source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: cmp.Or(driver, "integration.test"), VolumeHandle: string(pvc.UID),
	}}
	affinity := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: "test/name", Operator: corev1.NodeSelectorOpIn, Values: []string{selectedNode(pvc)},
		}},
	}}}}
	if driver != "" || selectedNode(pvc) == "" {
		affinity = nil
	}
	if pvc.Annotations["test/local"] != "" {
		source = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/volumes/" + pvc.Name}}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-" + string(pvc.UID)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: pvc.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:      pvc.Spec.AccessModes,
			VolumeMode:       pvc.Spec.VolumeMode,
			StorageClassName: *pvc.Spec.StorageClassName,

			VolumeAttributesClassName: pvc.Spec.VolumeAttributesClassName,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
			},
			PersistentVolumeSource: source,
			NodeAffinity:           affinity,
		},
	}
}

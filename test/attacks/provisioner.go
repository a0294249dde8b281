package attacks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// provisioner creates a namespace and its objects as an administrator.
type provisioner struct {
	cluster   kubernetes.Interface
	objects   dynamic.Interface
	namespace string
}

// PolicyLimits returns the ConfigMap that the admission policy requires in a namespace: the limits in manifests/admission-limits.yaml with
// these changes. root is the root of the repository.
func PolicyLimits(root string, changes map[string]string) (*corev1.ConfigMap, error) {
	const path = "manifests/admission-limits.yaml"
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	var limits corev1.ConfigMap
	if err := yaml.Unmarshal(raw, &limits); err != nil {
		return nil, err
	}
	for key, value := range changes {
		if _, known := limits.Data[key]; !known {
			return nil, fmt.Errorf("%s does not contain the key %s", path, key)
		}
		limits.Data[key] = value
	}
	return &limits, nil
}

// createNamespace creates the namespace with the CPI's permissions, and the limits that the policy requires.
func (p provisioner) createNamespace(ctx context.Context, root string, labels, limits map[string]string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: labels}}
	if _, err := p.cluster.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	parameter, err := PolicyLimits(root, limits)
	if err != nil {
		return err
	}
	if _, err := p.cluster.CoreV1().ConfigMaps(p.namespace).Create(ctx, parameter, metav1.CreateOptions{}); err != nil {
		return err
	}
	router := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "router"}}
	if _, err := p.cluster.CoreV1().ServiceAccounts(p.namespace).Create(ctx, router, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, path := range RBACFiles {
		raw, err := os.ReadFile(root + "/" + path)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			if err := p.applyRBAC(ctx, document); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	// The controller manager creates this service account, and counts the Pods of the ResourceQuota, a moment after the namespace. Before,
	// no Pod, or no attachment Pod, is admitted.
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := p.cluster.CoreV1().ServiceAccounts(p.namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		quota, err := p.cluster.CoreV1().ResourceQuotas(p.namespace).Get(ctx, "bosh-attachments", metav1.GetOptions{})
		return err == nil && len(quota.Status.Used) > 0, err
	})
}

// namespacePattern matches the namespace in manifests/rbac*.yaml, like the command at the top of manifests/rbac.yaml.
var namespacePattern = regexp.MustCompile(`(?m)([- ])bosh$`)

// applyRBAC creates the object in a YAML document of RBACFiles for this namespace.
func (p provisioner) applyRBAC(ctx context.Context, document string) error {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(namespacePattern.ReplaceAllString(document, "${1}"+p.namespace)), &object.Object); err != nil {
		return err
	}
	kind := object.GroupVersionKind()
	client := p.objects.Resource(kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s"))
	var err error
	if strings.HasPrefix(kind.Kind, "Cluster") {
		_, err = client.Create(ctx, &object, metav1.CreateOptions{})
	} else {
		_, err = client.Namespace(p.namespace).Create(ctx, &object, metav1.CreateOptions{})
	}
	return err
}

// unschedulable is a node selector that matches no node, so that Pods do not run.
var unschedulable = map[string]string{"attacks.test/node": "none"}

// createObjects creates objects of the CPI, and objects of another user of the same kinds.
func (p provisioner) createObjects(ctx context.Context) (vm manifest.VMPod, attachment manifest.AttachmentPod, err error) {
	core := p.cluster.CoreV1()
	vmSpec := manifest.VM{
		Name: "agent-one", Namespace: p.namespace, Image: stemcellImage, NodeImage: nodeImage, Group: "group-one", NodeSelector: unschedulable,
	}
	if vm.Pod, err = core.Pods(p.namespace).Create(ctx, vmSpec.Pod().Pod, metav1.CreateOptions{}); err != nil {
		return vm, attachment, err
	}
	if attachment.Pod, err = core.Pods(p.namespace).Create(ctx, newAttachment(diskName, vm).Pod().Pod, metav1.CreateOptions{}); err != nil {
		return vm, attachment, err
	}
	pvc := newPVC(p.namespace, diskName)
	service := manifest.Service{Name: "service-one", Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}}
	for _, item := range []struct {
		gvr    schema.GroupVersionResource
		kind   string
		object any
	}{
		{resources["persistentvolumeclaims"], "PersistentVolumeClaim", pvc.PVC},
		{resources["podtemplates"], "PodTemplate", newPodTemplate(p.namespace, "agent-three")},
		{resources["services"], "Service", service.Object(vm, "")},
		{resources["secrets"], "Secret", vmSpec.SettingsSecret(nil, vm)},
		{resources["poddisruptionbudgets"], "PodDisruptionBudget", manifest.DisruptionBudget{MinAvailable: new(int32(1))}.Object(vmSpec, vm, 1)},
		{resources["volumesnapshots"], "VolumeSnapshot", manifest.VolumeSnapshot("snapshot-one", "", pvc, manifest.Metadata{})},
	} {
		if err := p.createWithUnmanagedCopy(ctx, item.gvr, item.kind, item.object); err != nil {
			return vm, attachment, fmt.Errorf("%s: %w", item.kind, err)
		}
	}
	classless := newPVC(p.namespace, classlessDisk)
	classless.Spec.StorageClassName = nil
	classless.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi") // larger than any volume without a class
	if _, err := core.PersistentVolumeClaims(p.namespace).Create(ctx, classless.PVC, metav1.CreateOptions{}); err != nil {
		return vm, attachment, err
	}
	unmanaged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: othersName, Labels: map[string]string{"app": othersName}},
		Spec: corev1.PodSpec{
			NodeSelector: unschedulable, Containers: []corev1.Container{{Name: othersName, Image: "example.com/others:1"}},
		},
	}
	if _, err := core.Pods(p.namespace).Create(ctx, unmanaged, metav1.CreateOptions{}); err != nil {
		return vm, attachment, err
	}
	// The CPI creates helper Pods for the node of these Pods, so pretend that they run.
	vm.Spec.NodeName, attachment.Spec.NodeName = "node-a", "node-a"
	vm.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifest.VMContainer, ContainerID: "containerd://1f"}}
	return vm, attachment, p.createClusterObjects(ctx)
}

// createClusterObjects creates cluster-scoped objects of another user: a static PersistentVolume and a RuntimeClass.
func (p provisioner) createClusterObjects(ctx context.Context) error {
	volume := StaticVolume(othersName+"-"+p.namespace, "static-"+p.namespace, "1Gi")
	if _, err := p.cluster.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return err
	}
	runtimeClass := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: plainRuntimeClass}, Handler: "runc"}
	_, err := p.cluster.NodeV1().RuntimeClasses().Create(ctx, runtimeClass, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// StaticVolume returns a PersistentVolume for a directory of a node, as an administrator would create it manually.
func StaticVolume(name, class, size string) *corev1.PersistentVolume {
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": othersName}}
	return &corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}},
	}}
}

// createWithUnmanagedCopy creates the object, and a copy of it as another user's object.
func (p provisioner) createWithUnmanagedCopy(ctx context.Context, gvr schema.GroupVersionResource, kind string, object any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	original := &unstructured.Unstructured{Object: content}
	original.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	original.SetOwnerReferences(nil)
	unmanaged := original.DeepCopy()
	unmanaged.SetName(othersName)
	unmanaged.SetLabels(map[string]string{"app": othersName})
	unmanaged.SetAnnotations(nil)
	for _, created := range []*unstructured.Unstructured{original, unmanaged} {
		if _, err := p.objects.Resource(gvr).Namespace(p.namespace).Create(ctx, created, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// Attacker sends requests with the token of the CPI's service account. Its namespace contains objects of the CPI, such as a VM with an
// attached disk, and objects of another user. No Pod of the namespace runs.
type Attacker struct {
	Namespace string
	Client    kubernetes.Interface // with the token
	Objects   dynamic.Interface    // with the token

	existingVM         manifest.VMPod
	existingAttachment manifest.AttachmentPod // of a disk of existingVM
}

// nodeImage is the image of bosh-node in the default limits.
const nodeImage = "registry.example.com/bosh-node@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const (
	stemcellImage    = "registry.example.com/stemcells/jammy@sha256:a6d0d69aa6bdc68c5e74c2430be2143d749ea8b5826b510f887aea3cdcedc02e"
	sidecarImage     = "proxy.example.com/proxy:1" // injected by a webhook
	othersName       = "others"                    // the name of another user's objects
	diskName         = "disk-one"
	storageClassName = "standard" // in the default limits

	plainRuntimeClass = "attacks-plain" // a RuntimeClass that is not a sandbox
)

// RBACFiles are the paths of the files with the permissions of the CPI's service account, relative to the root of the repository.
var RBACFiles = []string{"manifests/rbac.yaml"}

// resources maps names of resources to those that the CPI uses.
var resources = map[string]schema.GroupVersionResource{
	"pods":                   {Version: "v1", Resource: "pods"},
	"podtemplates":           {Version: "v1", Resource: "podtemplates"},
	"secrets":                {Version: "v1", Resource: "secrets"},
	"services":               {Version: "v1", Resource: "services"},
	"persistentvolumeclaims": {Version: "v1", Resource: "persistentvolumeclaims"},
	"poddisruptionbudgets":   {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	"volumesnapshots":        {Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"},
}

// NewAttacker creates a namespace with these labels and limits, and its objects. root is the root of the repository.
func NewAttacker(ctx context.Context, admin *rest.Config, root, namespace string, labels, limits map[string]string) (*Attacker, error) {
	cluster, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	p := provisioner{cluster, objects, namespace}
	if err := p.createNamespace(ctx, root, labels, limits); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	a := &Attacker{Namespace: namespace}
	if a.existingVM, a.existingAttachment, err = p.createObjects(ctx); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	accounts := cluster.CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	if err := a.useCredentials(config); err != nil {
		return nil, err
	}
	return a, nil
}

// useCredentials replaces the attacker's credentials.
func (a *Attacker) useCredentials(config *rest.Config) error {
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	var err error
	if a.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	a.Objects, err = dynamic.NewForConfig(config)
	return err
}

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

// Remove deletes the attacker's namespace, and the cluster-scoped objects created by NewAttacker.
func (a *Attacker) Remove(ctx context.Context, admin *rest.Config) error {
	cluster, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	bindings, err := cluster.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, binding := range bindings.Items {
		if strings.HasSuffix(binding.Name, "-"+a.Namespace) {
			err = errors.Join(err, cluster.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		}
	}
	return errors.Join(err,
		cluster.CoreV1().PersistentVolumes().Delete(ctx, othersName+"-"+a.Namespace, metav1.DeleteOptions{}),
		cluster.CoreV1().Pods(a.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}),
		cluster.CoreV1().Namespaces().Delete(ctx, a.Namespace, metav1.DeleteOptions{}))
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

// newPVC returns a disk's PVC.
func newPVC(namespace, name string) manifest.DiskPVC {
	return manifest.Disk{
		Name: name, Namespace: namespace, SizeMiB: 64, Filesystem: "ext4", StorageClass: storageClassName,
		Mode: corev1.PersistentVolumeFilesystem, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}.PVC()
}

// newAttachment returns the attachment of a disk to the VM.
func newAttachment(disk string, vm manifest.VMPod) manifest.Attachment {
	return manifest.Attachment{
		Disk: disk, SizeMiB: 64, Filesystem: "ext4", Mode: corev1.PersistentVolumeFilesystem, VM: vm, NodeImage: nodeImage,
	}
}

// The following functions return or create objects like those of the CPI. Attacks change these objects.

func (a *Attacker) newVMPod() *corev1.Pod {
	return manifest.VM{Name: "agent-two", Namespace: a.Namespace, Image: stemcellImage, NodeImage: nodeImage}.Pod().Pod
}

func newPodTemplate(namespace, vm string) *corev1.PodTemplate {
	return manifest.VM{
		Name: vm, Namespace: namespace, Image: stemcellImage, NodeImage: nodeImage,
		Recreate: true, EphemeralClaim: &corev1.PersistentVolumeClaimSpec{},
	}.PodTemplate()
}

func (a *Attacker) createTemplate(ctx context.Context, template *corev1.PodTemplate) error {
	_, err := a.Client.CoreV1().PodTemplates(a.Namespace).Create(ctx, template, dryCreate)
	return err
}

func (a *Attacker) newAttachmentPod() *corev1.Pod {
	return newAttachment("disk-two", a.existingVM).Pod().Pod
}

// RegularRequests returns requests that the CPI sends, by the object that they create.
func RegularRequests() map[string]TryFunc {
	pod := func(build func(*Attacker) *corev1.Pod) TryFunc {
		return func(ctx context.Context, a *Attacker) error { return a.createPod(ctx, build(a)) }
	}
	return map[string]TryFunc{
		"VM":         pod((*Attacker).newVMPod),
		"attachment": pod((*Attacker).newAttachmentPod),
		"reboot":     pod(func(a *Attacker) *corev1.Pod { return manifest.RebootPod(a.existingVM, "", nodeImage).Pod }),
		"flush":      pod(func(a *Attacker) *corev1.Pod { return manifest.FlushPod(a.existingAttachment, "", nodeImage).Pod }),
		"disk": func(ctx context.Context, a *Attacker) error {
			return a.createPVC(ctx, newPVC(a.Namespace, "disk-two"))
		},
		"template": func(ctx context.Context, a *Attacker) error {
			return a.createTemplate(ctx, newPodTemplate(a.Namespace, "agent-two"))
		},
		"snapshot": func(ctx context.Context, a *Attacker) error {
			return a.createSnapshot(ctx, map[string]any{"persistentVolumeClaimName": diskName})
		},
		"exclusivity check": func(ctx context.Context, a *Attacker) error {
			return a.addEphemeralContainer(ctx, a.existingAttachment.Name, manifest.ExclusivityCheckContainer(a.existingAttachment, nodeImage))
		},
	}
}

// All requests are dry runs. Admission policies also apply to them.
var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

func (a *Attacker) createPod(ctx context.Context, pod *corev1.Pod) error {
	_, err := a.Client.CoreV1().Pods(a.Namespace).Create(ctx, pod, dryCreate)
	return err
}

func (a *Attacker) createPVC(ctx context.Context, pvc manifest.DiskPVC) error {
	_, err := a.Client.CoreV1().PersistentVolumeClaims(a.Namespace).Create(ctx, pvc.PVC, dryCreate)
	return err
}

func (a *Attacker) createPDB(ctx context.Context, selector *metav1.LabelSelector) error {
	vm := manifest.VM{Name: "agent-two", Namespace: a.Namespace, Group: "group-two"}
	pdb := manifest.DisruptionBudget{MinAvailable: new(int32(1))}.Object(vm, a.existingVM, 1)
	pdb.Spec.Selector = selector
	_, err := a.Client.PolicyV1().PodDisruptionBudgets(a.Namespace).Create(ctx, pdb, dryCreate)
	return err
}

func (a *Attacker) createSnapshot(ctx context.Context, source map[string]any) error {
	labels := map[string]any{manifest.LabelManagedBy: manifest.ManagedBy, manifest.LabelRole: manifest.RoleSnapshot}
	snapshot := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": "snapshot-two", "labels": labels},
		"spec":     map[string]any{"source": source},
	}}
	_, err := a.Objects.Resource(resources["volumesnapshots"]).Namespace(a.Namespace).Create(ctx, snapshot, dryCreate)
	return err
}

// addEphemeralContainer adds an ephemeral container to a Pod.
func (a *Attacker) addEphemeralContainer(ctx context.Context, pod string, container corev1.EphemeralContainer) error {
	existing, err := a.Client.CoreV1().Pods(a.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := manifest.ExclusivityCheckPatch(manifest.AttachmentPod{Pod: existing}, container)
	_, err = a.Client.CoreV1().Pods(a.Namespace).Patch(ctx, pod, types.StrategicMergePatchType, patch, dryPatch, "ephemeralcontainers")
	return err
}

// patchObject applies a merge patch to an object of the namespace.
func (a *Attacker) patchObject(ctx context.Context, resourceName, name string, patch any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = a.Objects.Resource(resources[resourceName]).Namespace(a.Namespace).Patch(ctx, name, types.MergePatchType, raw, dryPatch)
	return err
}

// httpRequest returns an attack that sends an HTTP request with these headers (name, value, ...). NAMESPACE in the path stands for the
// attacker's namespace.
func httpRequest(method, path string, headers ...string) TryFunc {
	return func(ctx context.Context, a *Attacker) error {
		request := a.Client.CoreV1().RESTClient().Verb(method).AbsPath(strings.ReplaceAll(path, "NAMESPACE", a.Namespace))
		for i := 0; i+1 < len(headers); i += 2 {
			request.SetHeader(headers[i], headers[i+1])
		}
		if method != "GET" && method != "DELETE" {
			request.Body([]byte("{}")).SetHeader("Content-Type", contentTypes[method])
		}
		return request.Param("dryRun", "All").Do(ctx).Error()
	}
}

// contentTypes are the content types of request bodies, by HTTP method.
var contentTypes = map[string]string{"POST": "application/json", "PUT": "application/json", "PATCH": "application/merge-patch+json"}

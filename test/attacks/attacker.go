package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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

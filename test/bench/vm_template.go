package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/bench/benchenv"
)

// vmTemplate contains the objects of a VM with an attached disk. vmCopies and minimalClient create copies of them.
type vmTemplate struct {
	vmCID, disk   string // CIDs
	vmPod         *corev1.Pod
	secret        *corev1.Secret
	attachmentPod *corev1.Pod
	pvc           *corev1.PersistentVolumeClaim
	pv            *corev1.PersistentVolume
}

// createTemplate uses the CPI to create a VM of this kind with an attached disk, and reads its objects.
func createTemplate(ctx context.Context, client kubernetes.Interface, d benchenv.Director, namespace, agentID string,
	kind vmKind) (s vmTemplate, err error) {

	s.vmCID = vmCID(agentID)
	if s.disk, _, err = createDisk(ctx, d); err != nil {
		return s, err
	}
	if _, err := createVM(ctx, d, agentID, kind, s.disk); err != nil {
		return s, err
	}
	if _, err := d.Call(ctx, nil, "attach_disk", s.vmCID, s.disk); err != nil {
		return s, err
	}
	core := client.CoreV1()
	if s.vmPod, err = core.Pods(namespace).Get(ctx, s.vmCID, metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.secret, err = core.Secrets(namespace).Get(ctx, s.vmCID, metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.attachmentPod, err = core.Pods(namespace).Get(ctx, manifest.AttachmentName(s.disk), metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.pvc, err = core.PersistentVolumeClaims(namespace).Get(ctx, s.disk, metav1.GetOptions{}); err != nil {
		return s, err
	}
	s.pv, err = core.PersistentVolumes().Get(ctx, s.pvc.Spec.VolumeName, metav1.GetOptions{})
	return s, err
}

// copyObject returns a copy of an object of the template, with other names and without the metadata set by the API server.
func copyObject[T any](s vmTemplate, object *T, vm, disk string) (*T, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	agentID := func(vmCID string) string { return strings.TrimPrefix(vmCID, "agent-") }
	renamed := strings.NewReplacer(s.vmCID, vm, s.disk, disk, agentID(s.vmCID), agentID(vm)).Replace(string(raw))
	result := new(T)
	if err := json.Unmarshal([]byte(renamed), result); err != nil {
		return nil, err
	}
	meta, ok := any(result).(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", result)
	}
	meta.SetUID("")
	meta.SetResourceVersion("")
	meta.SetManagedFields(nil)
	return result, nil
}

// templateAgentID is the agent ID of a template. It must not occur elsewhere in the objects, because copyObject replaces it.
const templateAgentID = "the-one-to-copy"

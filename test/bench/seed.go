package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// seed is a real machine with a disk attached: what a crowd, and a minimal client, make copies of.
type seed struct {
	vm, disk   string
	machine    *corev1.Pod
	secret     *corev1.Secret
	attachment *corev1.Pod
	claim      *corev1.PersistentVolumeClaim
	volume     *corev1.PersistentVolume
}

// plant makes a machine of this kind by the CPI, with a disk, and reads what it consists of.
func plant(ctx context.Context, client kubernetes.Interface, d stand.Director, namespace, agent string, k kind) (s seed, err error) {
	s.vm = vmOf(agent)
	if s.disk, _, err = createDisk(ctx, d); err != nil {
		return s, err
	}
	if _, err := createVM(ctx, d, agent, k, s.disk); err != nil {
		return s, err
	}
	if _, err := d.Call(ctx, nil, "attach_disk", s.vm, s.disk); err != nil {
		return s, err
	}
	core := client.CoreV1()
	if s.machine, err = core.Pods(namespace).Get(ctx, s.vm, metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.secret, err = core.Secrets(namespace).Get(ctx, s.vm, metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.attachment, err = core.Pods(namespace).Get(ctx, manifest.AttachmentName(s.disk), metav1.GetOptions{}); err != nil {
		return s, err
	}
	if s.claim, err = core.PersistentVolumeClaims(namespace).Get(ctx, s.disk, metav1.GetOptions{}); err != nil {
		return s, err
	}
	s.volume, err = core.PersistentVolumes().Get(ctx, s.claim.Spec.VolumeName, metav1.GetOptions{})
	return s, err
}

// copied is an object of the seed under other names, as its maker sent it: without what the API server adds.
func copied[T any](s seed, object *T, vm, disk string) (*T, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text := strings.NewReplacer(s.vm, vm, s.disk, disk, strings.TrimPrefix(s.vm, "agent-"), strings.TrimPrefix(vm, "agent-")).Replace(string(raw))
	made := new(T)
	if err := json.Unmarshal([]byte(text), made); err != nil {
		return nil, err
	}
	meta, ok := any(made).(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("a %T has no metadata", made)
	}
	meta.SetUID("")
	meta.SetResourceVersion("")
	meta.SetManagedFields(nil)
	return made, nil
}

// seedAgent is the id of a seed's agent: a word that nothing else contains.
const seedAgent = "the-one-to-copy"

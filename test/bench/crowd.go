package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// makers is how many copies are made at once.
const makers = 24

// crowd makes copies of a machine, as they are when they run: their Pods are Running, and their claims Bound.
type crowd struct {
	client    kubernetes.Interface
	namespace string
	seed      seed
	name      string
	// disks is how many each machine has: the first is attached, the others are bound and lie there.
	disks int
}

// grow makes the machines of these numbers. Nothing else may look meanwhile: see stand.Still.
func (c crowd) grow(ctx context.Context, from, to int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(makers)
	for n := from; n < to; n++ {
		group.Go(func() error {
			if err := c.machine(ctx, n); err != nil {
				return fmt.Errorf("copy %d of a machine: %w", n, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (c crowd) vm(n int) string { return fmt.Sprintf("agent-%s-%05d", c.name, n) }

func (c crowd) disk(n, i int) string { return fmt.Sprintf("disk-%s-%05d-%d", c.name, n, i) }

func (c crowd) machine(ctx context.Context, n int) error {
	vm, node := c.vm(n), stand.NodeName(n)
	pod, err := copied(c.seed, c.seed.machine, vm, "")
	if err != nil {
		return err
	}
	made, err := c.running(ctx, pod, node)
	if err != nil {
		return err
	}
	secret, err := copied(c.seed, c.seed.secret, vm, "")
	if err != nil {
		return err
	}
	own(secret, made.UID)
	if _, err := c.client.CoreV1().Secrets(c.namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range c.disks {
		if err := c.bound(ctx, vm, c.disk(n, i), i == 0); err != nil {
			return err
		}
	}
	if c.disks == 0 {
		return nil
	}
	attachment, err := copied(c.seed, c.seed.attachment, vm, c.disk(n, 0))
	if err != nil {
		return err
	}
	own(attachment, made.UID)
	_, err = c.running(ctx, attachment, node)
	return err
}

// own makes the object belong to the machine that is there.
func own(object metav1.Object, uid types.UID) {
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = uid
	}
	object.SetOwnerReferences(owners)
}

func (c crowd) running(ctx context.Context, pod *corev1.Pod, node string) (*corev1.Pod, error) {
	status := pod.Status
	pod.Spec.NodeName = node
	pods := c.client.CoreV1().Pods(c.namespace)
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	made.Status = status
	return pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
}

// bound makes a claim and its volume. The claim says which machine uses it only when one does.
func (c crowd) bound(ctx context.Context, vm, disk string, used bool) error {
	claim, err := copied(c.seed, c.seed.claim, vm, disk)
	if err != nil {
		return err
	}
	claim.Spec.VolumeName = "volume-" + disk
	if !used {
		delete(claim.Labels, manifest.LabelVM)
	}
	status := claim.Status
	core := c.client.CoreV1()
	if claim, err = core.PersistentVolumeClaims(c.namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim.Status = status
	if _, err := core.PersistentVolumeClaims(c.namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	volume, err := copied(c.seed, c.seed.volume, vm, disk)
	if err != nil {
		return err
	}
	volume.Name, volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion = claim.Spec.VolumeName, claim.UID, ""
	volume.Spec.CSI.VolumeHandle = disk
	volumeStatus := volume.Status
	if volume, err = core.PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return err
	}
	volume.Status = volumeStatus
	_, err = core.PersistentVolumes().UpdateStatus(ctx, volume, metav1.UpdateOptions{})
	return err
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/bench/stand"
	"bosh-kubernetes-cpi/test/embedded"
)

// makers is how many copies are made at once.
const makers = 8

// crowd makes copies of a machine, as they are when they run: their Pods are Running, and their claims Bound. It writes them into
// etcd as the API server does, which would take half an hour for what this does in a minute.
type crowd struct {
	plane     *embedded.ControlPlane
	client    kubernetes.Interface
	namespace string
	seed      seed
	name      string
	// disks is how many each machine has: the first is attached, the others are bound and lie there.
	disks int
}

// grow makes the machines of these numbers, and waits until the API server has heard of the last.
func (c crowd) grow(ctx context.Context, from, to int) error {
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(makers)
	for n := from; n < to; n++ {
		group.Go(func() error {
			if err := c.machine(writing, n); err != nil {
				return fmt.Errorf("copy %d of a machine: %w", n, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil || from == to {
		return err
	}
	return embedded.Eventually(ctx, 5*time.Minute, "the API server to know the crowd", func(ctx context.Context) (bool, error) {
		known, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM, FieldSelector: "metadata.name=" + c.vm(to-1), ResourceVersion: "0"})
		return err == nil && len(known.Items) == 1, err
	})
}

func (c crowd) vm(n int) string { return fmt.Sprintf("agent-%s-%05d", c.name, n) }

func (c crowd) disk(n, i int) string { return fmt.Sprintf("disk-%s-%05d-%d", c.name, n, i) }

// stored is an object at its place in etcd.
type stored struct {
	key    string
	object runtime.Object
}

func (c crowd) machine(ctx context.Context, n int) error {
	vm, node := c.vm(n), stand.NodeName(n)
	pod, err := copied(c.seed, c.seed.machine, vm, "")
	if err != nil {
		return err
	}
	secret, err := copied(c.seed, c.seed.secret, vm, "")
	if err != nil {
		return err
	}
	pod.UID, pod.Spec.NodeName = newUID(), node
	secret.UID = newUID()
	own(secret, pod.UID)
	all := []stored{{"pods/" + c.namespace + "/" + vm, pod}, {"secrets/" + c.namespace + "/" + vm, secret}}
	for i := range c.disks {
		disk, err := c.bound(vm, c.disk(n, i), i == 0)
		if err != nil {
			return err
		}
		all = append(all, disk...)
	}
	if c.disks > 0 {
		attachment, err := copied(c.seed, c.seed.attachment, vm, c.disk(n, 0))
		if err != nil {
			return err
		}
		attachment.UID, attachment.Spec.NodeName = newUID(), node
		own(attachment, pod.UID)
		all = append(all, stored{"pods/" + c.namespace + "/" + attachment.Name, attachment})
	}
	return c.put(ctx, all)
}

func newUID() types.UID { return types.UID(uuid.NewString()) }

// own makes the object belong to the machine that is there.
func own(object metav1.Object, uid types.UID) {
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = uid
	}
	object.SetOwnerReferences(owners)
}

// bound is a claim and its volume. The claim says which machine uses it only when one does.
func (c crowd) bound(vm, disk string, used bool) ([]stored, error) {
	claim, err := copied(c.seed, c.seed.claim, vm, disk)
	if err != nil {
		return nil, err
	}
	volume, err := copied(c.seed, c.seed.volume, vm, disk)
	if err != nil {
		return nil, err
	}
	claim.UID, claim.Spec.VolumeName = newUID(), "volume-"+disk
	if !used {
		delete(claim.Labels, manifest.LabelVM)
		delete(claim.Annotations, manifest.AnnotationOwner)
	}
	volume.UID, volume.Name = newUID(), claim.Spec.VolumeName
	volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion, volume.Spec.CSI.VolumeHandle = claim.UID, "", disk
	return []stored{{"persistentvolumeclaims/" + c.namespace + "/" + disk, claim}, {"persistentvolumes/" + volume.Name, volume}}, nil
}

// put writes the objects, at once.
func (c crowd) put(ctx context.Context, all []stored) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	var operations []operation
	for _, each := range all {
		value, err := runtime.Encode(encoder, each.object)
		if err != nil {
			return err
		}
		operations = append(operations, operation{put{[]byte("/registry/" + each.key), value}})
	}
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	if err := askEtcd(ctx, c.plane, "txn", map[string]any{"success": operations}, &answer); err != nil {
		return err
	}
	if !answer.Succeeded {
		return fmt.Errorf("etcd has not written %s", all[0].key)
	}
	return nil
}

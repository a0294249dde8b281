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
	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/embedded"
)

// copyWorkers is how many copies are made at once.
const copyWorkers = 8

// vmCopies makes copies of a machine, as they are when they run: their Pods are Running, and their claims Bound. It writes them into
// etcd as the API server does, which would take half an hour for what this does in a minute.
type vmCopies struct {
	plane     *embedded.ControlPlane
	client    kubernetes.Interface
	namespace string
	template  vmTemplate
	name      string
	// disks is how many each machine has: the first is attached, the others are bound and lie there.
	disks int
}

// create makes the machines of these numbers, and waits until the API server has heard of the last.
func (c vmCopies) create(ctx context.Context, from, to int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(copyWorkers)
	for n := from; n < to; n++ {
		group.Go(func() error {
			if err := c.createVM(groupCtx, n); err != nil {
				return fmt.Errorf("copy %d of a machine: %w", n, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil || from == to {
		return err
	}
	return embedded.WaitUntil(ctx, 5*time.Minute, "the API server to know the crowd", func(ctx context.Context) (bool, error) {
		known, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM, FieldSelector: "metadata.name=" + c.vmCID(to-1), ResourceVersion: "0"})
		return err == nil && len(known.Items) == 1, err
	})
}

func (c vmCopies) vmCID(n int) string { return fmt.Sprintf("agent-%s-%05d", c.name, n) }

func (c vmCopies) diskCID(n, i int) string { return fmt.Sprintf("disk-%s-%05d-%d", c.name, n, i) }

// etcdObject is an object at its place in etcd.
type etcdObject struct {
	key    string
	object runtime.Object
}

func (c vmCopies) createVM(ctx context.Context, n int) error {
	vm, node := c.vmCID(n), benchenv.NodeName(n)
	pod, err := copyObject(c.template, c.template.vmPod, vm, "")
	if err != nil {
		return err
	}
	secret, err := copyObject(c.template, c.template.secret, vm, "")
	if err != nil {
		return err
	}
	pod.UID, pod.Spec.NodeName = newUID(), node
	secret.UID = newUID()
	setOwnerUID(secret, pod.UID)
	all := []etcdObject{{"pods/" + c.namespace + "/" + vm, pod}, {"secrets/" + c.namespace + "/" + vm, secret}}
	for i := range c.disks {
		disk, err := c.boundPVC(vm, c.diskCID(n, i), i == 0)
		if err != nil {
			return err
		}
		all = append(all, disk...)
	}
	if c.disks > 0 {
		attachment, err := copyObject(c.template, c.template.attachmentPod, vm, c.diskCID(n, 0))
		if err != nil {
			return err
		}
		attachment.UID, attachment.Spec.NodeName = newUID(), node
		setOwnerUID(attachment, pod.UID)
		all = append(all, etcdObject{"pods/" + c.namespace + "/" + attachment.Name, attachment})
	}
	return c.writeToEtcd(ctx, all)
}

func newUID() types.UID { return types.UID(uuid.NewString()) }

// setOwnerUID makes the object belong to the machine that is there.
func setOwnerUID(object metav1.Object, uid types.UID) {
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = uid
	}
	object.SetOwnerReferences(owners)
}

// boundPVC is a claim and its volume. The claim says which machine uses it only when one does.
func (c vmCopies) boundPVC(vm, disk string, used bool) ([]etcdObject, error) {
	pvc, err := copyObject(c.template, c.template.pvc, vm, disk)
	if err != nil {
		return nil, err
	}
	volume, err := copyObject(c.template, c.template.pv, vm, disk)
	if err != nil {
		return nil, err
	}
	pvc.UID, pvc.Spec.VolumeName = newUID(), "volume-"+disk
	if !used {
		delete(pvc.Labels, manifest.LabelVM)
		delete(pvc.Annotations, manifest.AnnotationOwner)
	}
	volume.UID, volume.Name = newUID(), pvc.Spec.VolumeName
	volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion, volume.Spec.CSI.VolumeHandle = pvc.UID, "", disk
	return []etcdObject{{"persistentvolumeclaims/" + c.namespace + "/" + disk, pvc}, {"persistentvolumes/" + volume.Name, volume}}, nil
}

// writeToEtcd writes the objects, at once.
func (c vmCopies) writeToEtcd(ctx context.Context, all []etcdObject) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	var operations []operation
	for _, object := range all {
		value, err := runtime.Encode(encoder, object.object)
		if err != nil {
			return err
		}
		operations = append(operations, operation{put{[]byte("/registry/" + object.key), value}})
	}
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	if err := callEtcd(ctx, c.plane, "txn", map[string]any{"success": operations}, &answer); err != nil {
		return err
	}
	if !answer.Succeeded {
		return fmt.Errorf("etcd has not written %s", all[0].key)
	}
	return nil
}

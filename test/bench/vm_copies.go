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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// copyWorkers is the number of parallel workers that write copies.
const copyWorkers = 8

// vmCopies creates copies of a running VM: their Pods are Running, and their PVCs Bound. It writes them directly to etcd, in the API
// server's format. This takes a minute instead of half an hour.
type vmCopies struct {
	plane     *embedded.ControlPlane
	client    kubernetes.Interface
	namespace string
	template  vmTemplate
	name      string
	// disks is the number of disks of each VM. The first is attached, the others are not.
	disks int
}

// create creates the VMs with the numbers from "from" to "to"-1, and waits until the API server's cache contains the last one.
func (c vmCopies) create(ctx context.Context, from, to int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(copyWorkers)
	for n := from; n < to; n++ {
		group.Go(func() error {
			if err := c.createVM(groupCtx, n); err != nil {
				return fmt.Errorf("copy %d of the VM: %w", n, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil || from == to {
		return err
	}
	return embedded.WaitUntil(ctx, 5*time.Minute, "the API server to cache the copies", func(ctx context.Context) (bool, error) {
		cached, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM, FieldSelector: "metadata.name=" + c.vmCID(to-1), ResourceVersion: "0"})
		return err == nil && len(cached.Items) == 1, err
	})
}

func (c vmCopies) vmCID(n int) string { return fmt.Sprintf("agent-%s-%05d", c.name, n) }

func (c vmCopies) diskCID(n, i int) string { return fmt.Sprintf("disk-%s-%05d-%d", c.name, n, i) }

// etcdObject is an object and its key in etcd.
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
	objects := []etcdObject{{"pods/" + c.namespace + "/" + vm, pod}, {"secrets/" + c.namespace + "/" + vm, secret}}
	for i := range c.disks {
		disk, err := c.boundPVC(vm, c.diskCID(n, i), i == 0)
		if err != nil {
			return err
		}
		objects = append(objects, disk...)
	}
	if c.disks > 0 {
		attachment, err := copyObject(c.template, c.template.attachmentPod, vm, c.diskCID(n, 0))
		if err != nil {
			return err
		}
		attachment.UID, attachment.Spec.NodeName = newUID(), node
		setOwnerUID(attachment, pod.UID)
		objects = append(objects, etcdObject{"pods/" + c.namespace + "/" + attachment.Name, attachment})
	}
	return c.writeToEtcd(ctx, objects)
}

func newUID() types.UID { return types.UID(uuid.NewString()) }

// setOwnerUID sets the UID of the object's owners.
func setOwnerUID(object metav1.Object, uid types.UID) {
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = uid
	}
	object.SetOwnerReferences(owners)
}

// boundPVC returns a PVC and its PersistentVolume. If attached is false, the PVC has no owner record.
func (c vmCopies) boundPVC(vm, disk string, attached bool) ([]etcdObject, error) {
	pvc, err := copyObject(c.template, c.template.pvc, vm, disk)
	if err != nil {
		return nil, err
	}
	volume, err := copyObject(c.template, c.template.pv, vm, disk)
	if err != nil {
		return nil, err
	}
	pvc.UID, pvc.Spec.VolumeName = newUID(), "volume-"+disk
	if !attached {
		delete(pvc.Labels, manifest.LabelVM)
		delete(pvc.Annotations, manifest.AnnotationOwner)
	}
	volume.UID, volume.Name = newUID(), pvc.Spec.VolumeName
	volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion, volume.Spec.CSI.VolumeHandle = pvc.UID, "", disk
	return []etcdObject{{"persistentvolumeclaims/" + c.namespace + "/" + disk, pvc}, {"persistentvolumes/" + volume.Name, volume}}, nil
}

// writeToEtcd writes the objects in one transaction.
func (c vmCopies) writeToEtcd(ctx context.Context, objects []etcdObject) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	var operations []operation
	for _, object := range objects {
		value, err := runtime.Encode(encoder, object.object)
		if err != nil {
			return err
		}
		operations = append(operations, operation{put{[]byte("/registry/" + object.key), value}})
	}
	var response struct {
		Succeeded bool `json:"succeeded"`
	}
	if err := c.plane.CallEtcd(ctx, "kv/txn", map[string]any{"success": operations}, &response); err != nil {
		return err
	}
	if !response.Succeeded {
		return fmt.Errorf("etcd did not write %s", objects[0].key)
	}
	return nil
}

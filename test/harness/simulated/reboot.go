package simulated

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// RestartVMs restarts the containers of VMs with the annotation test/reboots, as a kubelet does after their reboot Pod succeeded. It runs
// until the context is canceled.
func RestartVMs(ctx context.Context, cluster kubernetes.Interface) {
	restarted := map[types.UID]bool{}
	watchRebootPods := func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
		return cluster.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleReboot})
	}
	watchUntilDone(ctx, watchRebootPods, func(event watch.Event) {
		rebootPod, isPod := event.Object.(*corev1.Pod)
		if !isPod || event.Type == watch.Deleted || rebootPod.Status.Phase != corev1.PodSucceeded || restarted[rebootPod.UID] {
			return
		}
		restarted[rebootPod.UID] = true
		restartContainer(ctx, cluster.CoreV1().Pods(rebootPod.Namespace), rebootPod.OwnerReferences[0].Name)
	})
}

// restartContainer increments the restart count of the VM's container. It ignores errors of the API server.
func restartContainer(ctx context.Context, pods typedcorev1.PodInterface, vm string) {
	vmPod, err := pods.Get(ctx, vm, metav1.GetOptions{})
	if err != nil || vmPod.Annotations["test/reboots"] == "" {
		return // the VM was deleted
	}
	statuses := vmPod.DeepCopy().Status.ContainerStatuses
	statuses[0].RestartCount++
	_, _ = pods.Patch(ctx, vm, types.MergePatchType, statusPatch(map[string]any{"containerStatuses": statuses}), metav1.PatchOptions{}, "status")
}

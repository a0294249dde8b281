package simulated

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// TerminatePods terminates deleted Pods as a kubelet does, until the context is canceled. It reports the exit code of the containers (0,
// or 137 with the annotation test/killed), and deletes the Pod by its UID. A Pod with the annotation test/stays and the attachment Pod of
// a mounted disk keep running.
func TerminatePods(ctx context.Context, cluster kubernetes.Interface) {
	watchUntilDone(ctx, cluster.CoreV1().Pods("").Watch, func(event watch.Event) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted || pod.DeletionTimestamp == nil ||
			pod.Annotations["test/stays"] != "" || isDiskMounted(ctx, cluster, pod) {
			return
		}
		// The API server deletes a Pod with a grace period of zero in two transactions. An update between these makes it delete the Pod by
		// name, and so possibly a new Pod of that name.
		if seconds := pod.DeletionGracePeriodSeconds; seconds != nil && *seconds > 0 {
			reportTermination(ctx, cluster, pod)
		}
		_ = cluster.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	})
}

// isDiskMounted reports whether the Pod is the attachment Pod of a mounted disk, according to the VM Pod's annotation test/mounted. It
// returns false for a Pod with the annotation test/killed, which terminates anyway.
func isDiskMounted(ctx context.Context, cluster kubernetes.Interface, pod *corev1.Pod) bool {
	if pod.Labels[manifest.LabelRole] != manifest.RoleAttachment || pod.Annotations["test/killed"] != "" {
		return false
	}
	vmPod, err := cluster.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Labels[manifest.LabelVM], metav1.GetOptions{})
	return err == nil && vmPod.Annotations["test/mounted"] == pod.Labels[manifest.LabelDisk]
}

// reportTermination sets the status of the Pod's containers to terminated. It ignores errors of the API server.
func reportTermination(ctx context.Context, cluster kubernetes.Interface, pod *corev1.Pod) {
	killed := pod.Annotations["test/killed"] != ""
	var terminated []corev1.ContainerStatus
	for _, container := range pod.Status.ContainerStatuses {
		container.Ready, container.Started = false, new(false)
		last := container.LastTerminationState.Terminated
		switch {
		case container.State.Waiting != nil && last != nil: // the container is not restarted
			container.State = corev1.ContainerState{Terminated: last}
		default:
			container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}
		if killed {
			container.State.Terminated.ExitCode = 137
		}
		terminated = append(terminated, container)
	}
	patch, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"containerStatuses": terminated},
	})
	_, _ = cluster.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
}

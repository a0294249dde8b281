package disk

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// WatchProvisioning is the sentinel for the volume of a disk that gets one at its first use: it fails when the
// provisioner does, again and again. A disk that has its volume needs none.
func (s *Session) WatchProvisioning(pvc *corev1.PersistentVolumeClaim) []call.DependencyWatch {
	if kube.Bound(pvc) {
		return nil
	}
	return []call.DependencyWatch{func(ctx context.Context) error {
		var provisioning kube.VolumeProvisioning
		return s.Events.Wait(ctx, kube.EventsAbout(pvc), nil, func(events []*corev1.Event) (bool, error) {
			if failure := provisioning.Failure(events); failure != "" {
				return false, call.CloudError.Errorf("disk %s cannot be attached: it gets no volume: %s", pvc.Name, failure)
			}
			return false, nil
		})
	}}
}

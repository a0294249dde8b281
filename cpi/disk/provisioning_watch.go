package disk

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// WatchProvisioning returns a dependency watch for a disk that gets its volume at its first use: it fails if the provisioner fails
// repeatedly. For a disk that has its volume, there is no watch.
func (s *Session) WatchProvisioning(pvc *corev1.PersistentVolumeClaim) []call.DependencyWatch {
	if kube.Bound(pvc) {
		return nil
	}
	return []call.DependencyWatch{func(ctx context.Context) error {
		var provisioning kube.VolumeProvisioning
		return s.Events.Wait(ctx, kube.EventsAbout(pvc), nil, func(events []*corev1.Event) (bool, error) {
			if failure := provisioning.Failure(events); failure != "" {
				return false, call.DiskNotProvisioned.Errorf("cannot attach disk %s: its volume cannot be provisioned: %s", pvc.Name, failure)
			}
			return false, nil
		})
	}}
}

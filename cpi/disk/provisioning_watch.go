package disk

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// WatchProvisioning returns a dependency watch for a disk without a volume, which is provisioned on first use. It fails if the
// provisioner keeps failing. For a disk with a volume, WatchProvisioning returns no watch.
func (s *Session) WatchProvisioning(pvc manifest.DiskPVC) []call.DependencyWatch {
	if kube.HasVolume(pvc.PVC) {
		return nil
	}
	return []call.DependencyWatch{func(ctx context.Context) error {
		var provisioning kube.VolumeProvisioning
		return s.Events.Wait(ctx, s.EventsAbout(pvc.PVC), nil, func(events []*corev1.Event) (bool, error) {
			if failure := provisioning.Failure(events); failure != "" {
				return false, call.CodeDiskNotProvisioned.Errorf("cannot attach disk %s: its volume cannot be provisioned: %s", pvc.Name, failure)
			}
			return false, nil
		})
	}}
}

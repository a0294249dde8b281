package disk

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// ProvisioningFails is the sentinel for the volume of a disk that gets one at its first use: it fails when the
// provisioner does, again and again. A disk that has its volume needs none.
func (s *Session) ProvisioningFails(disk *corev1.PersistentVolumeClaim) []call.Sentinel {
	if kube.Bound(disk) {
		return nil
	}
	return []call.Sentinel{func(ctx context.Context) error {
		var outlook kube.Provisioning
		return s.Events.Await(ctx, kube.EventsAbout(disk), nil, func(events []*corev1.Event) (bool, error) {
			if said := outlook.Hopeless(events); said != "" {
				return false, call.CloudError.Errorf("disk %s cannot be attached: it gets no volume: %s", disk.Name, said)
			}
			return false, nil
		})
	}}
}

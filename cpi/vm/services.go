package vm

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// ensureServices puts the machine behind its Services. Its Pod has their labels already; what is left
// is that they are there, have its ports, and stay as long as it does.
func (s *Session) ensureServices(services []manifest.Service, pod *corev1.Pod) error {
	for _, service := range services {
		if err := s.ensureService(service, pod); err != nil {
			return fmt.Errorf("service %s: %w", service.Name, err)
		}
	}
	return nil
}

// ensureService makes the Service, or joins the one that another machine or an earlier try left. A
// Service with a fixed name is looked for first, since it is mostly there; one that is named after the
// machine is mostly not.
func (s *Session) ensureService(service manifest.Service, pod *corev1.Pod) error {
	desired := service.Object(pod, s.Director)
	if !service.Fixed {
		if _, err := s.Services.Create(s.Ctx, desired); !errors.Is(err, kube.ErrExists) {
			return err
		}
	}
	return s.Services.CreateOrPatch(s.Ctx, service.Name, func(existing *corev1.Service, exists bool) (kube.Plan[*corev1.Service], error) {
		if !exists {
			return kube.Plan[*corev1.Service]{Create: desired}, nil
		}
		if err := s.checkDirector("Service", existing); err != nil {
			return kube.Plan[*corev1.Service]{}, err
		}
		patch, err := service.JoinPatch(existing, pod, s.Director)
		return kube.Plan[*corev1.Service]{Patch: patch}, err
	})
}

// checkDirector refuses to change what another director, or someone else altogether, has made.
func (s *Session) checkDirector(kind string, existing metav1.Object) error {
	if manifest.BelongsTo(existing, s.Director) {
		return nil
	}
	return call.VMCreationFailed.Errorf("there is a %s %s already that is not this director's: choose another name, or delete it",
		kind, existing.GetName())
}

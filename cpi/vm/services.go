package vm

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// ensureServices ensures that the VM's Services exist, have its ports, and are owned by the VM Pod, so that they exist at least as long as
// the Pod. The Pod already has the labels that the Services select.
func (s *Session) ensureServices(services []manifest.Service, pod manifest.VMPod) error {
	for _, service := range services {
		if err := s.ensureService(service, pod); err != nil {
			return fmt.Errorf("service %s: %w", service.Name, err)
		}
	}
	return nil
}

// ensureService creates the Service, or joins an existing one of another VM or an earlier attempt. It first reads a Service with a
// fixed name, which usually exists. It first tries to create a Service named after the VM, which usually does not exist.
func (s *Session) ensureService(service manifest.Service, pod manifest.VMPod) error {
	desired := service.Object(pod, s.Director)
	if !service.CustomName {
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
		others, err := s.listNewOwners(service, existing, pod)
		return kube.Plan[*corev1.Service]{Patch: service.JoinPatch(existing, pod, others, s.Director)}, err
	})
}

// listNewOwners returns the other VMs behind a Service that was kept until now, and therefore has no owners.
func (s *Session) listNewOwners(service manifest.Service, existing *corev1.Service, pod manifest.VMPod) ([]manifest.VMPod, error) {
	if service.Keep || !manifest.IsKept(existing) {
		return nil, nil
	}
	found, err := s.Pods.List(s.Ctx, kube.Selection{Labels: manifest.ManagedSelector + "," + manifest.ServiceLabel(service.Name)})
	if err != nil {
		return nil, err
	}
	templates, err := s.PodTemplates.List(s.Ctx, kube.Selection{Labels: manifest.ManagedSelector})
	others := manifest.VMPods(found.Items)
	for _, template := range templates.Items { // of VMs without a Pod, for example after an eviction
		if other := manifest.PodFromTemplate(template, ""); manifest.IsBehindService(service.Name, other) {
			others = append(others, other)
		}
	}
	owners := map[types.UID]bool{pod.OwnerReference().UID: true}
	return slices.DeleteFunc(others, func(other manifest.VMPod) bool {
		uid := other.OwnerReference().UID
		known := owners[uid]
		owners[uid] = true
		return known
	}), err
}

// checkDirector rejects an existing object that does not belong to this director.
func (s *Session) checkDirector(kind string, existing metav1.Object) error {
	if manifest.BelongsTo(existing, s.Director) {
		return nil
	}
	return call.CodeServiceExists.Errorf("%s %s already exists and does not belong to this director; choose another name, or delete it",
		kind, existing.GetName())
}

package preflight

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// creations are the checks of what calls make: each asks the API server to make one, with all that admits, changes and
// refuses objects there, and to store nothing.
func creations() []Check {
	ofPods := func(build func(samples, *corev1.Pod) *corev1.Pod) func(context.Context, *subject) finding {
		return func(ctx context.Context, s *subject) finding {
			return s.create(ctx, func(of samples, machine *corev1.Pod) (string, error) {
				wanted := build(of, machine)
				_, err := s.client.Pods.Try(ctx, wanted)
				return wanted.Spec.Containers[0].Image, err
			})
		}
	}
	return []Check{
		{"create-vm", Required, ofPods(func(of samples, machine *corev1.Pod) *corev1.Pod { return unplaced(machine) })},
		{"create-attachment", Required, ofPods(samples.attachment)},
		{"create-copy", Advised, ofPods(samples.copying)},
		{"create-reboot", Required, ofPods(func(of samples, machine *corev1.Pod) *corev1.Pod {
			return of.config.Pods.Equip(manifest.Reboot(machine, ""))
		})},
		{"create-flush", Advised, ofPods(func(of samples, machine *corev1.Pod) *corev1.Pod {
			held := of.attachment(machine)
			held.UID, held.Spec.NodeName = machine.UID, machine.Spec.NodeName
			return of.config.Pods.Equip(manifest.Flush(held, ""))
		})},
		{"create-settings", Required, tried(func(ctx context.Context, of samples, machine *corev1.Pod) error {
			vm, err := of.vm()
			if err != nil {
				return err
			}
			_, err = of.client.Secrets.Try(ctx, vm.Settings(map[string][]byte{"settings.json": []byte("{}")}, machine))
			return err
		})},
		{"create-disk", Required, tried(func(ctx context.Context, of samples, _ *corev1.Pod) error {
			_, err := of.client.Claims.Try(ctx, of.disk(of.id))
			return err
		})},
		{"create-service", Advised, tried(func(ctx context.Context, of samples, machine *corev1.Pod) error {
			_, err := of.client.Services.Try(ctx, of.service().Object(machine, ""))
			return err
		})},
		{"create-budget", Advised, tried(createBudget)},
		{"create-template", Advised, tried(createTemplate)},
		{"create-snapshot", Advised, lookAtSnapshot},
	}
}

// unplaced is the machine before it has a node.
func unplaced(machine *corev1.Pod) *corev1.Pod {
	pod := machine.DeepCopy()
	pod.UID, pod.Spec.NodeName, pod.Status = "", "", corev1.PodStatus{}
	return pod
}

func tried(try func(context.Context, samples, *corev1.Pod) error) func(context.Context, *subject) finding {
	return func(ctx context.Context, s *subject) finding {
		return s.create(ctx, func(of samples, machine *corev1.Pod) (string, error) { return "", try(ctx, of, machine) })
	}
}

// create tries to make an object, which may have an image.
func (s *subject) create(ctx context.Context, try func(samples, *corev1.Pod) (string, error)) finding {
	of := s.samples(ctx)
	machine, err := of.machine()
	if err != nil {
		return fails(err.Error(), "correct the configuration")
	}
	image, err := try(of, machine)
	if err != nil {
		return s.refused(err)
	}
	if image != "" {
		return ok("would be admitted, with image " + image)
	}
	return ok("would be admitted")
}

func createBudget(ctx context.Context, of samples, machine *corev1.Pod) error {
	vm, err := of.vm()
	if err != nil {
		return err
	}
	among, err := of.client.Budgets()
	if err != nil {
		return err
	}
	for _, budget := range []*policyv1.PodDisruptionBudget{
		manifest.Budget{MaxUnavailable: new(int32(1))}.Object(vm, machine, 1), manifest.DiskBudget(vm, machine),
	} {
		if _, err := among.Try(ctx, budget); err != nil {
			return err
		}
	}
	return nil
}

func createTemplate(ctx context.Context, of samples, _ *corev1.Pod) error {
	vm, err := of.vm()
	if err != nil {
		return err
	}
	vm.Recreate, vm.EphemeralClaim = true, &of.disk(of.id).Spec
	_, err = of.client.Templates.Try(ctx, vm.Template())
	return err
}

func lookAtSnapshot(ctx context.Context, s *subject) finding {
	of := s.samples(ctx)
	among, err := s.client.Snapshots()
	if err == nil {
		_, err = among.Try(ctx, manifest.Snapshot(manifest.SnapshotName(of.id), "", of.disk(of.id), manifest.Metadata{}))
	}
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warns("the cluster has no VolumeSnapshots",
			"none, or for snapshots install a CSI driver that takes them, and the snapshot controller: "+
				"without, snapshot_disk answers NotImplemented, and the director goes on")
	case err != nil:
		return s.refused(err)
	}
	return ok("would be admitted")
}

// refused says what to do about an object that the API server does not take.
func (s *subject) refused(err error) finding {
	said := err.Error()
	for _, each := range []struct{ words, advice string }{
		{"violates PodSecurity", "kubectl label namespace " + s.client.Namespace + " pod-security.kubernetes.io/enforce=privileged --overwrite"},
		{"exceeded quota", "raise the ResourceQuota that the message names, or take another namespace"},
		{"no PriorityClass with name", "make that PriorityClass (manifests/priority-class.yaml), or correct disk.attachment_priority_class"},
		{noDefaultClass, makeDefaultClass},
		{"ValidatingAdmissionPolicy", "have the policy that the message names admit what the CPI makes, see docs/trust.md; " +
			"where it is about images, give a stemcell's image with -image"},
		{"maximum", "raise the LimitRange of the namespace, or lower pods.helper_limits"},
		{"minimum", "lower the LimitRange's minimum in the namespace, or raise pods.helper_limits"},
		{"cannot create resource", "give the right: " + strings.ReplaceAll(inNamespace(rightsOfCalls), "NAMESPACE", s.client.Namespace)},
		{"does not support dry run", "ask who runs that webhook whether it refuses such an object: it cannot be tried"},
		{"not found", "make the namespace: kubectl create namespace " + s.client.Namespace},
		{"denied the request", "have the admission webhook that the message names admit what the CPI makes, or except the namespace"},
	} {
		if strings.Contains(said, each.words) {
			if strings.Contains(each.words, "dry run") {
				return unknown(said, each.advice)
			}
			return fails(said, each.advice)
		}
	}
	switch {
	case errors.Is(err, kube.ErrWebhook):
		return fails(said, "bring the admission webhook that the message names back, or remove its configuration: it fails for every call")
	case errors.Is(err, kube.ErrRefused):
		return fails(said, "have what the message names admit it: admission policies, webhooks and quotas of the namespace")
	}
	return failed(err, rightsOfCalls)
}

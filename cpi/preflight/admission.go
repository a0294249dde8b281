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

// admissionChecks are the checks of what calls make: each asks the API server to make one, with all that admits, changes and
// refuses objects there, and to store nothing.
func admissionChecks() []Check {
	podCheck := func(build func(sampleObjects, *corev1.Pod) *corev1.Pod) func(context.Context, *clusterState) finding {
		return func(ctx context.Context, s *clusterState) finding {
			return s.dryRunCreate(ctx, func(samples sampleObjects, vmPod *corev1.Pod) (string, error) {
				desired := build(samples, vmPod)
				_, err := s.client.Pods.DryRunCreate(ctx, desired)
				return desired.Spec.Containers[0].Image, err
			})
		}
	}
	return []Check{
		{"create-vm", Required, podCheck(func(samples sampleObjects, vmPod *corev1.Pod) *corev1.Pod { return withoutNode(vmPod) })},
		{"create-attachment", Required, podCheck(sampleObjects.buildAttachmentPod)},
		{"create-copy", Advised, podCheck(sampleObjects.buildCopyPod)},
		{"create-reboot", Required, podCheck(func(samples sampleObjects, vmPod *corev1.Pod) *corev1.Pod {
			return samples.config.Pods.ApplyToHelperPod(manifest.RebootPod(vmPod, ""))
		})},
		{"create-flush", Advised, podCheck(func(samples sampleObjects, vmPod *corev1.Pod) *corev1.Pod {
			attachmentPod := samples.buildAttachmentPod(vmPod)
			attachmentPod.UID, attachmentPod.Spec.NodeName = vmPod.UID, vmPod.Spec.NodeName
			return samples.config.Pods.ApplyToHelperPod(manifest.FlushPod(attachmentPod, ""))
		})},
		{"create-settings", Required, dryRunCheck(func(ctx context.Context, samples sampleObjects, vmPod *corev1.Pod) error {
			vm, err := samples.buildVM()
			if err != nil {
				return err
			}
			_, err = samples.client.Secrets.DryRunCreate(ctx, vm.SettingsSecret(map[string][]byte{"settings.json": []byte("{}")}, vmPod))
			return err
		})},
		{"create-disk", Required, dryRunCheck(func(ctx context.Context, samples sampleObjects, _ *corev1.Pod) error {
			_, err := samples.client.PVCs.DryRunCreate(ctx, samples.buildDiskPVC(samples.id))
			return err
		})},
		{"create-service", Advised, dryRunCheck(func(ctx context.Context, samples sampleObjects, vmPod *corev1.Pod) error {
			_, err := samples.client.Services.DryRunCreate(ctx, samples.buildService().Object(vmPod, ""))
			return err
		})},
		{"create-budget", Advised, dryRunCheck(dryRunPDBs)},
		{"create-template", Advised, dryRunCheck(dryRunPodTemplate)},
		{"create-snapshot", Advised, inspectSnapshot},
	}
}

// withoutNode is the machine before it has a node.
func withoutNode(vmPod *corev1.Pod) *corev1.Pod {
	pod := vmPod.DeepCopy()
	pod.UID, pod.Spec.NodeName, pod.Status = "", "", corev1.PodStatus{}
	return pod
}

func dryRunCheck(try func(context.Context, sampleObjects, *corev1.Pod) error) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		return s.dryRunCreate(ctx, func(samples sampleObjects, vmPod *corev1.Pod) (string, error) { return "", try(ctx, samples, vmPod) })
	}
}

// dryRunCreate tries to make an object, which may have an image.
func (s *clusterState) dryRunCreate(ctx context.Context, try func(sampleObjects, *corev1.Pod) (string, error)) finding {
	samples := s.newSamples(ctx)
	vmPod, err := samples.buildVMPod()
	if err != nil {
		return fail(err.Error(), "correct the configuration")
	}
	image, err := try(samples, vmPod)
	if err != nil {
		return s.refusalFinding(err)
	}
	if image != "" {
		return pass("would be admitted, with image " + image)
	}
	return pass("would be admitted")
}

func dryRunPDBs(ctx context.Context, samples sampleObjects, vmPod *corev1.Pod) error {
	vm, err := samples.buildVM()
	if err != nil {
		return err
	}
	pdbs, err := samples.client.PodDisruptionBudgets()
	if err != nil {
		return err
	}
	for _, pdb := range []*policyv1.PodDisruptionBudget{
		manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}.Object(vm, vmPod, 1), manifest.AttachmentPDB(vm, vmPod),
	} {
		if _, err := pdbs.DryRunCreate(ctx, pdb); err != nil {
			return err
		}
	}
	return nil
}

func dryRunPodTemplate(ctx context.Context, samples sampleObjects, _ *corev1.Pod) error {
	vm, err := samples.buildVM()
	if err != nil {
		return err
	}
	vm.Recreate, vm.EphemeralClaim = true, &samples.buildDiskPVC(samples.id).Spec
	_, err = samples.client.PodTemplates.DryRunCreate(ctx, vm.PodTemplate())
	return err
}

func inspectSnapshot(ctx context.Context, s *clusterState) finding {
	samples := s.newSamples(ctx)
	snapshots, err := s.client.VolumeSnapshots()
	if err == nil {
		_, err = snapshots.DryRunCreate(
			ctx,
			manifest.VolumeSnapshot(manifest.SnapshotName(samples.id), "", samples.buildDiskPVC(samples.id), manifest.Metadata{}),
		)
	}
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warn("the cluster has no VolumeSnapshots",
			"none, or for snapshots install a CSI driver that takes them, and the snapshot controller: "+
				"without, snapshot_disk answers NotImplemented, and the director goes on")
	case err != nil:
		return s.refusalFinding(err)
	}
	return pass("would be admitted")
}

// refusalFinding says what to do about an object that the API server does not take.
func (s *clusterState) refusalFinding(err error) finding {
	message := err.Error()
	for _, hint := range []struct{ words, advice string }{
		{"violates PodSecurity", "kubectl label namespace " + s.client.Namespace + " pod-security.kubernetes.io/enforce=privileged --overwrite"},
		{"exceeded quota", "raise the ResourceQuota that the message names, or take another namespace"},
		{"no PriorityClass with name", "make that PriorityClass (manifests/priority-class.yaml), or correct disk.attachment_priority_class"},
		{noDefaultStorageClass, adviceDefaultStorageClass},
		{"ValidatingAdmissionPolicy", "have the policy that the message names admit what the CPI makes, see docs/trust.md; " +
			"where it is about images, give a stemcell's image with -image"},
		{"maximum", "raise the LimitRange of the namespace, or lower pods.helper_limits"},
		{"minimum", "lower the LimitRange's minimum in the namespace, or raise pods.helper_limits"},
		{"cannot create resource", "give the right: " + strings.ReplaceAll(applyCommand(callRightsFile), "NAMESPACE", s.client.Namespace)},
		{"does not support dry run", "ask who runs that webhook whether it refuses such an object: it cannot be tried"},
		{"not found", "make the namespace: kubectl create namespace " + s.client.Namespace},
		{"denied the request", "have the admission webhook that the message names admit what the CPI makes, or except the namespace"},
	} {
		if strings.Contains(message, hint.words) {
			if strings.Contains(hint.words, "dry run") {
				return undetermined(message, hint.advice)
			}
			return fail(message, hint.advice)
		}
	}
	switch {
	case errors.Is(err, kube.ErrWebhook):
		return fail(message, "bring the admission webhook that the message names back, or remove its configuration: it fails for every call")
	case errors.Is(err, kube.ErrRefused):
		return fail(message, "have what the message names admit it: admission policies, webhooks and quotas of the namespace")
	}
	return errorFinding(err, callRightsFile)
}

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// admissionChecks returns a check for each kind of object that calls create: a dry run with all admission control of the API
// server, which stores nothing.
func admissionChecks() []Check {
	return []Check{
		{"create-vm", Required, podCheck("VM Pods", func(_ sampleObjects, vmPod manifest.VMPod) *corev1.Pod { return withoutNode(vmPod).Pod })},
		{"create-attachment", Required, podCheck("attachment Pods", func(samples sampleObjects, vmPod manifest.VMPod) *corev1.Pod {
			return samples.buildAttachmentPod(vmPod).Pod
		})},
		{"create-reboot", Required, podCheck("reboot Pods", func(samples sampleObjects, vmPod manifest.VMPod) *corev1.Pod {
			return samples.config.Pods.ApplyToHelperPod(manifest.RebootPod(vmPod, "", samples.nodeImage).Pod)
		})},
		{"create-flush", Advised, podCheck("flush Pods", func(samples sampleObjects, vmPod manifest.VMPod) *corev1.Pod {
			attachmentPod := samples.buildAttachmentPod(vmPod)
			attachmentPod.UID, attachmentPod.Spec.NodeName = vmPod.UID, vmPod.Spec.NodeName
			return samples.config.Pods.ApplyToHelperPod(manifest.FlushPod(attachmentPod, "", samples.nodeImage).Pod)
		})},
		{"create-settings", Required, objectCheck(func(ctx context.Context, samples sampleObjects, vmPod manifest.VMPod) error {
			vm, err := samples.buildVM()
			if err != nil {
				return err
			}
			_, err = samples.client.Secrets.DryRunCreate(ctx, vm.SettingsSecret(map[string][]byte{"settings.json": []byte("{}")}, vmPod))
			return err
		})},
		{"create-disk", Required, objectCheck(func(ctx context.Context, samples sampleObjects, _ manifest.VMPod) error {
			pvc := samples.buildDiskPVC().PVC
			_, err := samples.client.PVCs.DryRunCreate(ctx, pvc)
			if classes := samples.limits.storageClasses; isExcludedClass(err) && len(classes) > 0 {
				pvc.Spec.StorageClassName = &classes[0]
				_, err = samples.client.PVCs.DryRunCreate(ctx, pvc)
			}
			return err
		})},
		{"create-service", Advised, objectCheck(func(ctx context.Context, samples sampleObjects, vmPod manifest.VMPod) error {
			_, err := samples.client.Services.DryRunCreate(ctx, samples.buildService().Object(vmPod, ""))
			return err
		})},
		{"create-budget", Advised, objectCheck(dryRunPDBs)},
		{"create-template", Advised, objectCheck(dryRunPodTemplate)},
		{"create-snapshot", Advised, inspectSnapshot},
	}
}

// withoutNode returns the VM Pod before it is scheduled.
func withoutNode(vmPod manifest.VMPod) manifest.VMPod {
	pod := vmPod.DeepCopy()
	pod.UID, pod.Spec.NodeName, pod.Status = "", "", corev1.PodStatus{}
	return manifest.VMPod{Pod: pod}
}

// podCheck returns a check that creates a Pod in a dry run, and compares it with the admitted Pod. pods describes Pods of this kind.
func podCheck(pods string, build func(sampleObjects, manifest.VMPod) *corev1.Pod) func(context.Context, *clusterState) finding {
	return dryRunCheck(func(ctx context.Context, samples sampleObjects, vmPod manifest.VMPod) (finding, error) {
		sent := build(samples, vmPod)
		admitted, err := samples.client.Pods.DryRunCreate(ctx, sent)
		if err != nil {
			return finding{}, err
		}
		if changes := admissionChanges(pods, sent, admitted); len(changes) > 0 {
			return fail("a webhook or policy of the cluster "+strings.Join(changes, "; and "),
				"exempt Pods with the label "+manifest.LabelManagedBy+"="+manifest.ManagedBy+" from the webhook or policy, or the namespace"), nil
		}
		priority := admitted.Spec.Priority
		if manifest.HasRole(sent, manifest.RoleAttachment) && priority != nil && *priority < criticalPriority {
			return warn(fmt.Sprintf("the PriorityClass %s of attachment Pods has value %d; the kubelet may evict them while their disks are in use",
				admitted.Spec.PriorityClassName, *priority),
				"remove kubernetes.disk.attachment_priority_class, unless the cluster does not admit "+manifest.AttachmentPriorityClass), nil
		}
		detail := "would be admitted, with image " + manifest.OwnContainer(sent).Image
		if manifest.HasRole(sent, manifest.RoleVM) {
			detail += samples.limits.describe()
		}
		return pass(detail), nil
	})
}

// criticalPriority is the lowest priority of Pods that the kubelet never evicts (SystemCriticalPriority in
// k8s.io/kubernetes/pkg/apis/scheduling).
const criticalPriority = 2_000_000_000

// objectCheck returns a check that creates an object in a dry run.
func objectCheck(create func(context.Context, sampleObjects, manifest.VMPod) error) func(context.Context, *clusterState) finding {
	return dryRunCheck(func(ctx context.Context, samples sampleObjects, vmPod manifest.VMPod) (finding, error) {
		return pass("would be admitted"), create(ctx, samples, vmPod)
	})
}

// dryRunCheck returns a check with the finding of create, or with the reason for which the API server rejects the object.
func dryRunCheck(
	create func(context.Context, sampleObjects, manifest.VMPod) (finding, error),
) func(context.Context, *clusterState) finding {

	return func(ctx context.Context, s *clusterState) finding {
		samples := s.newSamples(ctx)
		vmPod, err := samples.buildVMPod()
		if err != nil {
			return fail(err.Error(), "correct the configuration")
		}
		found, err := create(ctx, samples, vmPod)
		if err != nil {
			found = s.rejectionFinding(err)
		}
		if err != nil && errors.Is(samples.limitsError, kube.ErrDenied) {
			found.remedy += "; the checks do not know the limits of the policy without permission to get the ConfigMap " + limitsName +
				", which is in " + callPermissionsFile
		}
		return found
	}
}

func dryRunPDBs(ctx context.Context, samples sampleObjects, vmPod manifest.VMPod) error {
	vm, err := samples.buildVM()
	if err != nil {
		return err
	}
	pdbs := samples.client.PodDisruptionBudgets()
	for _, pdb := range []*policyv1.PodDisruptionBudget{
		manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}.Object(vm, vmPod, 1), manifest.AttachmentPDB(vm, vmPod),
	} {
		if _, err := pdbs.DryRunCreate(ctx, pdb); err != nil {
			return err
		}
	}
	return nil
}

func dryRunPodTemplate(ctx context.Context, samples sampleObjects, _ manifest.VMPod) error {
	vm, err := samples.buildVM()
	if err != nil {
		return err
	}
	vm.Recreate, vm.EphemeralClaim = true, &samples.buildDiskPVC().Spec
	_, err = samples.client.PodTemplates.DryRunCreate(ctx, vm.PodTemplate())
	return err
}

func inspectSnapshot(ctx context.Context, s *clusterState) finding {
	samples := s.newSamples(ctx)
	_, err := s.client.VolumeSnapshots().DryRunCreate(
		ctx,
		manifest.VolumeSnapshot(manifest.SnapshotName(samples.id), "", samples.buildDiskPVC(), manifest.Metadata{}),
	)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warn("the cluster does not serve VolumeSnapshots",
			"for snapshots, install a CSI driver that supports them, and the snapshot controller; "+
				"without them, snapshot_disk returns NotImplemented, and the director continues")
	case err != nil:
		return s.rejectionFinding(err)
	}
	return pass("would be admitted")
}

// rejectionFinding returns the finding for an object that the API server rejected.
func (s *clusterState) rejectionFinding(err error) finding {
	message := err.Error()
	if errors.Is(err, kube.ErrWebhook) {
		return fail(message, "repair the admission webhook in the message, or delete its configuration; every call fails")
	}
	for _, hint := range []struct{ words, remedy string }{
		{"violates PodSecurity", "kubectl label namespace " + s.client.Namespace + " pod-security.kubernetes.io/enforce=privileged --overwrite"},
		{"insufficient quota to match these scopes", "apply " + callPermissionsFile + " with the ResourceQuota bosh-attachments, which admits " +
			"system-node-critical in the namespace, or set kubernetes.disk.attachment_priority_class to a PriorityClass that the cluster admits"},
		{"exceeded quota", "raise the ResourceQuota in the message, or use another namespace"},
		{"no PriorityClass with name", "create the PriorityClass, or correct kubernetes.disk.attachment_priority_class"},
		{noDefaultStorageClass, adviceDefaultStorageClass},
		{"ValidatingAdmissionPolicy", "change the policy in the message so that it admits the objects of the CPI, " +
			"see docs/explanation/security.md; if it restricts images, set --image to the image of a stemcell, and kubernetes.node_image in the " +
			"configuration, or --node-image of kubectl bosh check, to that of bosh-node"},
		{"per PersistentVolumeClaim", "change the namespace's LimitRange so that it admits disks of all sizes"},
		{"limit to request ratio", "raise the ratio of the namespace's LimitRange; or set kubernetes.pods.helper_requests, and " +
			"resources.requests of VMs, to the limits divided by the ratio in the message"},
		{"maximum", "raise the maximum of the namespace's LimitRange; or lower kubernetes.pods.helper_limits, and resources.limits of VMs"},
		{"minimum", "lower the minimum of the namespace's LimitRange; or raise kubernetes.pods.helper_requests, and resources.requests of VMs, " +
			"to this minimum"},
		{"cannot create resource", "grant the permission: " +
			strings.ReplaceAll(grantCommand, "NAMESPACE", s.client.Namespace)},
		{"does not support dry run", "ask the operator of the webhook whether it admits such objects; it does not support dry runs"},
		{`namespaces "`, "create the namespace: kubectl create namespace " + s.client.Namespace},
		{"GKE Warden", "use a GKE Standard cluster: Autopilot does not allow privileged Pods"},
		{"security context constraint", "oc adm policy add-scc-to-user privileged -z bosh-cpi -n " + s.client.Namespace},
		{"denied the request", "change the admission webhook in the message so that it admits the objects of the CPI, or exempt the namespace"},
	} {
		if strings.Contains(message, hint.words) {
			if strings.Contains(hint.words, "dry run") {
				return undetermined(message, hint.remedy)
			}
			return fail(message, hint.remedy)
		}
	}
	if errors.Is(err, kube.ErrDenied) {
		return fail(message, "correct the cause in the message: an admission policy, a webhook or a quota of the namespace")
	}
	return errorFinding(err, callPermissionsFile)
}

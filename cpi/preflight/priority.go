package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// inspectPriorityClass compares the priorities of attachment Pods and VM Pods. It reads the priorities from Pods of dry runs,
// because the CPI has no permission to read PriorityClasses.
func inspectPriorityClass(ctx context.Context, s *clusterState) finding {
	priorityClass := s.config.Disk.AttachmentPriorityClass
	if priorityClass == "" {
		return warn("disk.attachment_priority_class is not set; attachment Pods have the priority of their VM Pods",
			"apply manifests/priority-class.yaml and set it, so that no Pod preempts attachment Pods")
	}
	samples := s.newSamples(ctx)
	sampleVMPod, err := samples.buildVMPod()
	if err != nil {
		return fail(err.Error(), "correct the configuration")
	}
	attachment, err := s.client.Pods.DryRunCreate(ctx, samples.buildAttachmentPod(sampleVMPod).Pod)
	if err != nil {
		return s.rejectionFinding(err)
	}
	vmPod, err := s.client.Pods.DryRunCreate(ctx, withoutNode(sampleVMPod).Pod)
	if err != nil {
		return s.rejectionFinding(err)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	highest, owner := priority(vmPod.Spec), "VMs without a priority_class"
	for _, pod := range pods {
		if manifest.HasRole(pod, manifest.RoleVM) && priority(pod.Spec) > highest {
			highest, owner = priority(pod.Spec), "VM "+pod.Name
		}
	}
	message := fmt.Sprintf("PriorityClass %s has value %d; highest value of VMs: %d (%s)",
		priorityClass, priority(attachment.Spec), highest, owner)
	if priority(attachment.Spec) <= highest {
		return fail(message, "raise the value of "+priorityClass+" above the priority of all other Pods on the nodes of VMs")
	}
	return pass(message)
}

func priority(pod corev1.PodSpec) int32 {
	if pod.Priority == nil {
		return 0
	}
	return *pod.Priority
}

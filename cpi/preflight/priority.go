package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

// inspectPriorityClass compares the attachments' priority with the machines': the API server gives every Pod the value of its
// class when it is asked to make one, so that no right to read classes is needed.
func inspectPriorityClass(ctx context.Context, s *clusterState) finding {
	priorityClass := s.config.Disk.AttachmentPriorityClass
	if priorityClass == "" {
		return warn("disk.attachment_priority_class is not set: attachments have their VMs' priority",
			"apply manifests/priority-class.yaml and name it, so that nothing pushes attachments off a full node")
	}
	samples := s.newSamples(ctx)
	sampleVMPod, err := samples.buildVMPod()
	if err != nil {
		return fail(err.Error(), "correct the configuration")
	}
	attachment, err := s.client.Pods.DryRunCreate(ctx, samples.buildAttachmentPod(sampleVMPod))
	if err != nil {
		return s.refusalFinding(err)
	}
	vmPod, err := s.client.Pods.DryRunCreate(ctx, withoutNode(sampleVMPod))
	if err != nil {
		return s.refusalFinding(err)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	highest, whose := priority(vmPod), "VMs without a priority_class"
	for _, pod := range pods {
		if pod.Labels[manifest.LabelRole] == manifest.RoleVM && priority(pod) > highest {
			highest, whose = priority(pod), "VM "+pod.Name
		}
	}
	message := fmt.Sprintf("%s has the value %d, %s have %d", priorityClass, priority(attachment), whose, highest)
	if priority(attachment) <= highest {
		return fail(message, "give "+priorityClass+" a value above those of all Pods that run where BOSH's machines do")
	}
	return pass(message)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

// lookAtPriority compares the attachments' priority with the machines': the API server gives every Pod the value of its
// class when it is asked to make one, so that no right to read classes is needed.
func lookAtPriority(ctx context.Context, s *subject) finding {
	class := s.config.Disk.AttachmentPriorityClass
	if class == "" {
		return warns("disk.attachment_priority_class is not set: attachments have their VMs' priority",
			"apply manifests/priority-class.yaml and name it, so that nothing pushes attachments off a full node")
	}
	of := s.samples(ctx)
	machine, err := of.machine()
	if err != nil {
		return fails(err.Error(), "correct the configuration")
	}
	attachment, err := s.client.Pods.Try(ctx, of.attachment(machine))
	if err != nil {
		return s.refused(err)
	}
	vm, err := s.client.Pods.Try(ctx, unplaced(machine))
	if err != nil {
		return s.refused(err)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	highest, whose := priority(vm), "VMs without a priority_class"
	for _, pod := range pods {
		if pod.Labels[manifest.LabelRole] == manifest.RoleVM && priority(pod) > highest {
			highest, whose = priority(pod), "VM "+pod.Name
		}
	}
	said := fmt.Sprintf("%s has the value %d, %s have %d", class, priority(attachment), whose, highest)
	if priority(attachment) <= highest {
		return fails(said, "give "+class+" a value above those of all Pods that run where BOSH's machines do")
	}
	return ok(said)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

package vm

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

const (
	// autoscalerDecisionTimeout is the time within which an autoscaler reports whether it adds a node for an unschedulable Pod. The
	// cluster autoscaler checks for such Pods every 10 s.
	autoscalerDecisionTimeout = 20 * time.Second
	// capacityTimeout is how long an attachment Pod may wait for capacity on its node: the scheduler may still count Pods that just
	// finished. An autoscaler cannot help, because the Pod requires this node.
	capacityTimeout = 20 * time.Second
)

var errNoMatchingNode = errors.New("no node matches the VM's placement, and no autoscaler adds one")

// watchScaleUp returns a dependency watch for an unschedulable VM. It fails if an autoscaler reports that it adds no node, or if no
// autoscaler reports anything and the VM can never run on a node that exists.
func (s *Session) watchScaleUp(pod manifest.VMPod) call.DependencyWatch {
	pod = manifest.VMPod{Pod: pod.DeepCopy()} // the wait updates its own copy concurrently
	return func(ctx context.Context) error {
		var autoscaler kube.AutoscalerDecision
		checkEvents := func(events []*corev1.Event) (bool, error) {
			autoscaler = kube.AutoscalerDecisionOf(events)
			if autoscaler.Reason != "" {
				return false, call.CodeVMUnschedulable.Errorf("VM %s did not start: no node can run it (%s), and no autoscaler will add one: %s",
					pod.Name, kube.UnschedulableReason(pod.Pod), autoscaler.Reason)
			}
			return false, nil
		}
		decisionCtx, cancel := context.WithTimeout(ctx, autoscalerDecisionTimeout)
		err := s.Events.Wait(decisionCtx, s.EventsAbout(pod), nil, checkEvents)
		cancel()
		if !errors.Is(err, kube.ErrTimeout) || ctx.Err() != nil {
			return err
		}
		if !autoscaler.ScalesUp {
			if err := s.checkPlacement(ctx, pod); err != nil {
				return err
			}
		}
		return s.Events.Wait(ctx, s.EventsAbout(pod), nil, checkEvents)
	}
}

// checkPlacement fails if no node of the cluster matches the Pod's requirements, or if the Pod requests more than any node has in total.
func (s *Session) checkPlacement(ctx context.Context, pod manifest.VMPod) error {
	nodes, err := s.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	if requirement := kube.UnmatchedPlacement(pod.Pod, nodes.Items); requirement != "" {
		return call.CodeVMUnschedulable.Errorf("VM %s did not start: %w: it requires %s", pod.Name, errNoMatchingNode, requirement)
	}
	if shortage := kube.UnsatisfiableRequest(pod.Pod, nodes.Items); shortage != "" {
		return call.CodeVMTooLarge.Errorf("VM %s did not start: it requests %s in total (%s)",
			pod.Name, shortage, kube.UnschedulableReason(pod.Pod))
	}
	return nil
}

// watchNodeCapacity returns a dependency watch for an attachment Pod, which can run only on the VM's node. It fails if that node has no
// capacity for capacityTimeout.
func (s *Session) watchNodeCapacity(attachment manifest.AttachmentPod) call.DependencyWatch {
	selection := kube.Selection{Name: attachment.Name}
	return func(ctx context.Context) error {
		for {
			shortage := ""
			err := s.Pods.Wait(ctx, selection, nil, func(present []*corev1.Pod) (bool, error) {
				if len(present) == 0 || present[0].Spec.NodeName != "" {
					return true, nil
				}
				shortage = kube.InsufficientCapacity(present[0])
				return shortage != "", nil
			})
			if err != nil || shortage == "" {
				return err
			}
			waitCtx, cancel := context.WithTimeout(ctx, capacityTimeout)
			err = s.Pods.Wait(waitCtx, selection, nil, func(present []*corev1.Pod) (bool, error) {
				return len(present) == 0 || kube.InsufficientCapacity(present[0]) == "", nil
			})
			cancel()
			switch {
			case errors.Is(err, kube.ErrTimeout) && ctx.Err() == nil:
				return call.CodeDiskAttachUnschedulable.Errorf("attachment Pod %s did not start: the VM's node has no capacity: %s; "+
					"free capacity, or recreate the VM", selection.Name, strings.TrimSuffix(shortage, "."))
			case err != nil:
				return err
			}
		}
	}
}

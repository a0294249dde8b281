package vm

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

const (
	// autoscalerDecisionTimeout is how soon an autoscaler says of a Pod that no node takes whether it brings one. The cluster
	// autoscaler looks every 10 s.
	autoscalerDecisionTimeout = 20 * time.Second
	// capacityTimeout is how long an attachment may find no room on its node, where Pods that have just ended may still
	// be in the books. No autoscaler helps there.
	capacityTimeout = 20 * time.Second
)

// watchScaleUp is the sentinel for a machine that no node takes: it fails when an autoscaler says that it does not bring
// one, and when none says anything and no node is large enough.
func (s *Session) watchScaleUp(pod *corev1.Pod) call.DependencyWatch {
	pod = pod.DeepCopy() // the wait beside the sentinel keeps its own up to date
	return func(ctx context.Context) error {
		var autoscaler kube.AutoscalerDecision
		checkEvents := func(events []*corev1.Event) (bool, error) {
			autoscaler = kube.AutoscalerDecisionOf(events)
			if autoscaler.Refusal != "" {
				return false, call.VMCreationFailed.Errorf("VM %s did not come up: no node takes it (%s), and no autoscaler brings one: %s",
					pod.Name, kube.UnschedulableReason(pod), autoscaler.Refusal)
			}
			return false, nil
		}
		decisionCtx, cancel := context.WithTimeout(ctx, autoscalerDecisionTimeout)
		err := s.Events.Wait(decisionCtx, kube.EventsAbout(pod), nil, checkEvents)
		cancel()
		if !errors.Is(err, kube.ErrTimeout) || ctx.Err() != nil {
			return err
		}
		if !autoscaler.ScalesUp {
			if err := s.checkFitsAnyNode(ctx, pod); err != nil {
				return err
			}
		}
		return s.Events.Wait(ctx, kube.EventsAbout(pod), nil, checkEvents)
	}
}

// checkFitsAnyNode fails when no node of the cluster could ever hold the Pod.
func (s *Session) checkFitsAnyNode(ctx context.Context, pod *corev1.Pod) error {
	nodes, err := s.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	if shortage := kube.TooLarge(pod, nodes.Items); shortage != "" {
		return call.VMCreationFailed.Errorf("VM %s did not come up: it asks for %s, and no node of the cluster has that much, used or not (%s)",
			pod.Name, shortage, kube.UnschedulableReason(pod))
	}
	return nil
}

// watchNodeCapacity is the sentinel for an attachment, which can run on its machine's node alone: it fails when there is no
// room.
func (s *Session) watchNodeCapacity(attachment *corev1.Pod) call.DependencyWatch {
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
				return call.CloudError.Errorf("Pod %s, which attaches the disk, finds no room on the VM's node: %s", selection.Name, shortage)
			case err != nil:
				return err
			}
		}
	}
}

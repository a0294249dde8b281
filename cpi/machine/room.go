package machine

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

const (
	// autoscalerSpeaks is how soon an autoscaler says of a Pod that no node takes whether it brings one. The cluster
	// autoscaler looks every 10 s.
	autoscalerSpeaks = 20 * time.Second
	// roomPatience is how long an attachment may find no room on its node, where Pods that have just ended may still
	// be in the books. No autoscaler helps there.
	roomPatience = 20 * time.Second
)

// nodeComes is the sentinel for a machine that no node takes: it fails when an autoscaler says that it does not bring
// one, and when none says anything and no node is large enough.
func (s *Session) nodeComes(pod *corev1.Pod) call.Sentinel {
	pod = pod.DeepCopy() // the wait beside the sentinel keeps its own up to date
	return func(ctx context.Context) error {
		var scaler kube.Autoscaler
		heard := func(events []*corev1.Event) (bool, error) {
			scaler = kube.AutoscalerOf(events)
			if scaler.Refuses != "" {
				return false, call.VMCreationFailed.Errorf("VM %s did not come up: no node takes it (%s), and no autoscaler brings one: %s",
					pod.Name, kube.Unschedulable(pod), scaler.Refuses)
			}
			return false, nil
		}
		speaking, cancel := context.WithTimeout(ctx, autoscalerSpeaks)
		err := s.Events.Await(speaking, kube.EventsAbout(pod), nil, heard)
		cancel()
		if !errors.Is(err, kube.ErrTimeout) || ctx.Err() != nil {
			return err
		}
		if !scaler.Helps {
			if err := s.largeEnough(ctx, pod); err != nil {
				return err
			}
		}
		return s.Events.Await(ctx, kube.EventsAbout(pod), nil, heard)
	}
}

// largeEnough fails when no node of the cluster could ever hold the Pod.
func (s *Session) largeEnough(ctx context.Context, pod *corev1.Pod) error {
	nodes, err := s.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	if short := kube.TooLarge(pod, nodes.Items); short != "" {
		return call.VMCreationFailed.Errorf("VM %s did not come up: it asks for %s, and no node of the cluster has that much, used or not (%s)",
			pod.Name, short, kube.Unschedulable(pod))
	}
	return nil
}

// findsRoom is the sentinel for an attachment, which can run on its machine's node alone: it fails when there is no
// room.
func (s *Session) findsRoom(attachment *corev1.Pod) call.Sentinel {
	which := kube.Selection{Name: attachment.Name}
	return func(ctx context.Context) error {
		for {
			full := ""
			err := s.Pods.Await(ctx, which, nil, func(present []*corev1.Pod) (bool, error) {
				if len(present) == 0 || present[0].Spec.NodeName != "" {
					return true, nil
				}
				full = kube.NoRoom(present[0])
				return full != "", nil
			})
			if err != nil || full == "" {
				return err
			}
			waiting, cancel := context.WithTimeout(ctx, roomPatience)
			err = s.Pods.Await(waiting, which, nil, func(present []*corev1.Pod) (bool, error) {
				return len(present) == 0 || kube.NoRoom(present[0]) == "", nil
			})
			cancel()
			switch {
			case errors.Is(err, kube.ErrTimeout) && ctx.Err() == nil:
				return call.CloudError.Errorf("Pod %s, which attaches the disk, finds no room on the VM's node: %s", which.Name, full)
			case err != nil:
				return err
			}
		}
	}
}

package machine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Delete removes the machine first, so that nothing uses its disks any more, then their
// attachments, and then makes the disks free, which stay. The Secret is left to the garbage collector.
//
// On a node that does not answer the machine's deletion is asked for as well, and the call fails: the
// machine is gone when the node has come back, or the operator has said that it is off.
func (s *Session) Delete(vm string) error {
	found, which, err := s.PodsOf(vm)
	if err != nil {
		return err
	}
	origin, err := s.originOf(vm, found.Items)
	if err != nil {
		return err
	}
	if len(found.Items) == 0 && origin == nil {
		released, err := s.disks().ReleaseFrom(vm)
		if err == nil && !released {
			return call.NoVM(vm)
		}
		return err
	}
	s.aboutDoomed(found.Items, origin)
	s.awaitKilled(which, found)
	deletion := deletion{session: s, origin: origin, asked: map[types.UID]bool{}}
	left := found.Items
	err = s.AwaitUnless(s.NodeFails(kube.NodeOf(found.Items)), which, &found, func(present []*corev1.Pod) (bool, error) {
		left = present
		return len(present) == 0, deletion.proceed(present)
	})
	if len(left) == 0 {
		if err == nil {
			_, err = s.disks().ReleaseFrom(vm)
		}
		return err
	}
	stuck := left[0]
	return s.ExplainTimeout(stuck, err, "Pod "+stuck.Name+" does not end on node "+stuck.Spec.NodeName)
}

// restartPatience is how long an attachment that was killed may take to run again: kubelets start a container after 10, 20 and
// 40 seconds.
const restartPatience = time.Minute

// awaitKilled waits until attachments that were killed run again. One that does not run when it is deleted leaves its loop device,
// or its mount, on the node, and no other node could have the volume then.
func (s *Session) awaitKilled(which kube.Selection, found kube.Snapshot[*corev1.Pod]) {
	if !slices.ContainsFunc(found.Items, killed) {
		return
	}
	waiting, cancel := s.within(restartPatience)
	defer cancel()
	err := waiting.AwaitUnless(s.NodeFails(kube.NodeOf(found.Items)), which, &found, func(present []*corev1.Pod) (bool, error) {
		return !slices.ContainsFunc(present, killed), nil
	})
	if err != nil {
		s.Log.Warn("an attachment of the VM was killed and does not run again: its volume may stay with the node", "error", err)
	}
}

// killed reports that the attachment's program was killed, and is to be started again.
func killed(pod *corev1.Pod) bool {
	status := manifest.OwnStatus(pod)
	ended := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
	return pod.Labels[manifest.LabelRole] == manifest.RoleAttachment && pod.DeletionTimestamp == nil && !kube.Finished(pod) &&
		status.State.Running == nil && ended != nil && kube.Cut(ended)
}

// aboutDoomed says that the call is about the machine's Pod, or about what is there of a machine without one.
func (s *Session) aboutDoomed(pods []*corev1.Pod, origin *corev1.PodTemplate) {
	switch machines := call.Machines(pods); {
	case len(machines) > 0:
		s.About(s.Pods.Reference(machines[0]))
	case origin != nil:
		s.About(s.Templates.Reference(origin))
	default:
		s.About(call.OwnerOf(pods[0]))
	}
}

// deletion asks for the end of a machine's objects, of each once.
type deletion struct {
	session *Session
	origin  *corev1.PodTemplate // what the machine's Pod would be made from again, or nil
	asked   map[types.UID]bool
}

// proceed asks for the end of the machine's Pod, and once that is gone of what it was made from and of the
// attachments: only a machine that is gone uses no disk.
func (d *deletion) proceed(present []*corev1.Pod) error {
	if machine := call.Machines(present); len(machine) > 0 {
		return d.end(machine)
	}
	if err := d.endOrigin(); err != nil {
		return err
	}
	return d.end(present)
}

func (d *deletion) end(pods []*corev1.Pod) error {
	s := d.session
	for _, pod := range pods {
		if d.asked[pod.UID] {
			continue
		}
		d.asked[pod.UID] = true
		if err := s.Pods.Delete(s.Ctx, pod); err != nil {
			return err
		}
		if err := s.LeaveBudget(pod); err != nil {
			return err
		}
	}
	return nil
}

func (d *deletion) endOrigin() error {
	s := d.session
	if d.origin == nil || d.asked[d.origin.UID] {
		return nil
	}
	d.asked[d.origin.UID] = true
	if err := s.Templates.Delete(s.Ctx, d.origin); err != nil {
		return err
	}
	return s.LeaveBudget(manifest.Machine(d.origin, ""))
}

// originOf returns what the machine's Pod would be made from again, of a machine without a Pod too; nil when
// there is no such thing.
func (s *Session) originOf(vm string, pods []*corev1.Pod) (*corev1.PodTemplate, error) {
	if machines := call.Machines(pods); len(machines) > 0 {
		return s.strategyOf(machines[0]).origin(machines[0]), nil
	}
	template, err := s.Template(vm)
	if call.VMNotFound.In(err) {
		return nil, nil
	}
	return template, err
}

// remove deletes a machine's Pod, waits until its node has stopped it, and removes its Secret, and what the
// Pod would be made from again, without waiting for the garbage collector. No disk is attached to it yet.
func (s *Session) remove(pod *corev1.Pod) error {
	if origin := s.strategyOf(pod).origin(pod); origin != nil { // before its Pod, or another call would make that again
		if err := s.Templates.Delete(s.Ctx, origin); err != nil {
			return err
		}
	}
	if err := s.End(pod); err != nil {
		return err
	}
	return s.removeRest(pod)
}

// removeRest removes what is left of a machine whose Pod is gone, or was never up.
func (s *Session) removeRest(pod *corev1.Pod) error {
	if origin := s.strategyOf(pod).origin(pod); origin != nil {
		if err := s.Templates.Delete(s.Ctx, origin); err != nil {
			return err
		}
	}
	secret, err := s.Secrets.Get(s.Ctx, pod.Name)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if kube.OwnedBy(secret, manifest.Owner(pod).UID) {
		return s.Secrets.Delete(s.Ctx, secret)
	}
	return nil
}

package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// hotPlug is the strategy of machines whose disks come and go while they run: nothing is done to the Pod, and
// all that is done for a disk is done by its attachment.
type hotPlug struct{ *Session }

func (hotPlug) permit(network.Networks) error { return nil }

// bring makes the Pod. One of the same name is what an earlier try with the same agent id left: the
// same request adopts it, another replaces it.
func (p hotPlug) bring(vm manifest.VM) (*corev1.Pod, error) {
	pod, made, err := p.Pods.Bring(p.Ctx, vm.Pod(), func(left *corev1.Pod) (bool, error) {
		if kube.Runs(left) && left.Annotations[manifest.AnnotationDigest] == vm.Digest {
			p.Log.Info("adopting the Pod that an earlier try left", "pod", left.Name)
			return true, nil
		}
		p.Log.Info("replacing the Pod that an earlier try left", "pod", left.Name)
		return false, p.remove(left)
	})
	if err != nil || made {
		return pod, err
	}
	return p.Adopt(pod)
}

func (hotPlug) origin(*corev1.Pod) *corev1.PodTemplate { return nil }

func (hotPlug) stays(*corev1.Pod) bool { return true }

func (hotPlug) whole(*corev1.Pod, []*corev1.Pod) bool { return true }

// held goes by the claims too: a cluster can take an attachment away, and the machine then uses the disk all the same.
// Nothing waits for the attachments that are made again. One that a detach_disk has proven free, and told to end, holds
// nothing any more, as for the other methods about the disk.
func (p hotPlug) held(machine *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	used, err := p.disks().UsedBy(machine.Name)
	if err != nil {
		return nil, err
	}
	attachments = slices.DeleteFunc(attachments, func(each *corev1.Pod) bool {
		uses := func(claim *corev1.PersistentVolumeClaim) bool { return claim.Name == each.Labels[manifest.LabelDisk] }
		return each.DeletionTimestamp != nil && released(each) && !slices.ContainsFunc(used, uses)
	})
	disks := disksOf(attachments)
	for _, claim := range used {
		if slices.Contains(disks, claim.Name) {
			continue
		}
		disks = append(disks, claim.Name)
		p.Log.Warn("the attachment of a disk that is in use was taken away, and is made again", "disk", claim.Name, "vm", machine.Name)
		if !kube.Runs(machine) || machine.Spec.NodeName == "" {
			continue
		}
		if _, _, err := p.bringAttachment(claim, machine); err != nil {
			p.Log.Warn("the attachment could not be made again", "disk", claim.Name, "error", err)
		}
	}
	return disks, nil
}

func (p hotPlug) regain(vm, cid string) error {
	_, err := p.Attach(vm, cid)
	return err
}

func (hotPlug) placed(machine *corev1.Pod) (*corev1.Pod, error) { return machine, nil }

func (hotPlug) describe(*corev1.Pod, manifest.Metadata) error { return nil }

func (hotPlug) keep(*corev1.Pod, map[string]string) error { return nil }

func (hotPlug) accept(*corev1.PersistentVolumeClaim, *corev1.Pod) error { return nil }

func (hotPlug) give(*corev1.PersistentVolumeClaim, *corev1.Pod, *corev1.Pod, bool) error { return nil }

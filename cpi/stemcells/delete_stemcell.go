package stemcells

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// Delete deletes the image of a heavy stemcell from the registry, unless a VM uses it: the VM's node may have to pull it
// again. The CPI does not own the image of a light stemcell, and does not delete it.
func (s *Session) Delete(cid string) error {
	if !stemcell.IsHeavy(cid) {
		return nil
	}
	if err := s.Connect(); err != nil {
		return err
	}
	selection := kube.Selection{Labels: manifest.LabelRole + "=" + manifest.RoleVM}
	pod, used, err := s.Pods.Find(s.Ctx, selection, func(pod *corev1.Pod) bool {
		return stemcell.SameImage(manifest.StemcellOf(pod), cid)
	})
	if err != nil {
		return err
	}
	if used {
		return stemcellInUseError(cid, pod.Name)
	}
	// A VM with disk_strategy: recreate has no Pod after an eviction.
	selection = kube.Selection{Labels: manifest.ManagedSelector}
	template, used, err := s.PodTemplates.Find(s.Ctx, selection, func(template *corev1.PodTemplate) bool {
		return stemcell.SameImage(manifest.StemcellOf(manifest.PodFromTemplate(template, "")), cid)
	})
	if err != nil {
		return err
	}
	if used {
		return stemcellInUseError(cid, template.Name)
	}
	return stemcellError(s.store().Delete(s.Ctx, cid))
}

func stemcellInUseError(cid, vm string) error {
	return call.CodeStemcellInUse.Errorf("stemcell %s is in use by VM %s; delete or recreate that VM first", cid, vm)
}

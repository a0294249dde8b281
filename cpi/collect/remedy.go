package collect

import (
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/kube/extension"
)

// remedy deletes or repairs an orphaned resource.
type remedy struct {
	outcome string // in the past tense, for example "deleted"
	// apply returns an error if the resource changed since it was listed.
	apply func(*vm.Session) error
}

func deletion(apply func(*vm.Session) error) *remedy { return &remedy{"deleted", apply} }

func deletePod(pod *corev1.Pod) *remedy {
	return deletion(func(s *vm.Session) error { return s.Pods.DeleteUnchanged(s.Ctx, pod) })
}

func deleteVMPod(vmPod manifest.VMPod) *remedy {
	return deletion(func(s *vm.Session) error {
		return errors.Join(s.Pods.DeleteUnchanged(s.Ctx, vmPod.Pod), s.UpdatePDBAfterDelete(vmPod))
	})
}

// deleteTemplate deletes the PodTemplate of a VM with disk_strategy: recreate. The garbage collector of Kubernetes deletes its dependents.
func deleteTemplate(template *corev1.PodTemplate) *remedy {
	return deletion(func(s *vm.Session) error { return s.PodTemplates.DeleteUnchanged(s.Ctx, template) })
}

func deleteService(service *corev1.Service) *remedy {
	return deletion(func(s *vm.Session) error { return s.Services.DeleteUnchanged(s.Ctx, service) })
}

func deleteSnapshot(snapshot *extension.VolumeSnapshot) *remedy {
	return deletion(func(s *vm.Session) error { return s.VolumeSnapshots().DeleteUnchanged(s.Ctx, snapshot) })
}

func deletePDB(pdb *policyv1.PodDisruptionBudget) *remedy {
	return deletion(func(s *vm.Session) error { return s.PodDisruptionBudgets().DeleteUnchanged(s.Ctx, pdb) })
}

// resizePDB reduces the number of Pods that the PodDisruptionBudget requires.
func resizePDB(name string, minAvailable int32, patch []byte) *remedy {
	return &remedy{fmt.Sprintf("set to %d", minAvailable), func(s *vm.Session) error {
		_, err := s.PodDisruptionBudgets().Patch(s.Ctx, name, patch)
		return err
	}}
}

// releaseDisk removes the owner record from the disk.
func releaseDisk(pvc manifest.DiskPVC, owner manifest.DiskOwner) *remedy {
	return &remedy{"released", func(s *vm.Session) error {
		_, err := (&disk.Session{Call: s.Call}).Release(pvc.Name, owner)
		return err
	}}
}

// reattachDisk recreates the lost attachment Pods of the VM's disks.
func reattachDisk(vmCID string) *remedy {
	return &remedy{"attached again", func(s *vm.Session) error { return s.RestoreAttachments(vmCID) }}
}

// kindOf returns the kind of an object of the inventory.
func kindOf(object metav1.Object) string { return reflect.TypeOf(object).Elem().Name() }

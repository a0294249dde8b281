package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"bosh-kubernetes-cpi/kube"
)

// findDefaultStorageClass finds out what a disk without a class gets: the API server says so when it is asked for one. The right to
// list classes is none of the CPI's.
func (s *clusterState) findDefaultStorageClass(ctx context.Context) (*storagev1.StorageClass, error) {
	samples := s.newSamples(ctx)
	pvc, err := s.client.PVCs.DryRunCreate(ctx, samples.buildDiskPVC(samples.id))
	if err != nil || pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		return nil, err
	}
	return s.getStorageClass(ctx, *pvc.Spec.StorageClassName)
}

func (s *clusterState) getStorageClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	storageClasses, err := s.client.StorageClasses()
	if err != nil {
		return nil, err
	}
	return storageClasses.Get(ctx, name)
}

// inspectStorageClasses looks at the default class, and at those of disks that are there.
func inspectStorageClasses(ctx context.Context, s *clusterState) finding {
	defaultClass, err := s.defaultStorageClass(ctx)
	if err != nil {
		return s.refusalFinding(err)
	}
	pvcs, err := s.pvcs(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	known := map[string]*storagev1.StorageClass{}
	standard := ""
	if defaultClass != nil {
		standard = defaultClass.Name
		known[standard] = defaultClass
	}
	for _, name := range storageClassesOf(pvcs) {
		if known[name] != nil {
			continue
		}
		class, err := s.getStorageClass(ctx, name)
		switch {
		case errors.Is(err, kube.ErrNotFound):
			return fail("disks have the StorageClass "+name+", which is gone", "make it again: such disks cannot be grown, nor copied within it")
		case err != nil:
			return errorFinding(err, callRightsFile)
		}
		known[name] = class
	}
	if standard == "" {
		return fail("the cluster has "+noDefaultStorageClass, adviceDefaultStorageClass)
	}
	return evaluateStorageClasses(known, standard)
}

// noDefaultClass is in what the check says, and in what the admission policy says of a disk without a class.
const (
	noDefaultStorageClass     = "no default StorageClass"
	adviceDefaultStorageClass = "annotate one with storageclass.kubernetes.io/is-default-class=true, " +
		"or name storage_class in the cloud_properties of every disk type, and of ephemeral_disk"
)

// storageClassesOf are the classes that the claims name, in order.
func storageClassesOf(pvcs []*corev1.PersistentVolumeClaim) []string {
	names := map[string]bool{}
	for _, pvc := range pvcs {
		if pvc.Spec.StorageClassName != nil && *pvc.Spec.StorageClassName != "" {
			names[*pvc.Spec.StorageClassName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func evaluateStorageClasses(known map[string]*storagev1.StorageClass, standard string) finding {
	var messages, advice []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		class := known[name]
		about := name + " (" + class.Provisioner
		if name == standard {
			about = name + " (the default, " + class.Provisioner
		}
		if class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate {
			about += ", binds at once"
			advice = append(advice, name+": volumeBindingMode WaitForFirstConsumer has a volume made where its VM is")
		}
		if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
			about += ", does not grow"
			advice = append(advice, name+": with allowVolumeExpansion: true a disk grows in place, and is not copied")
		}
		messages = append(messages, about+")")
	}
	if len(advice) > 0 {
		return warn(strings.Join(messages, "; "), strings.Join(advice, "; "))
	}
	return pass(strings.Join(messages, "; "))
}

// withDefaultStorageClass is a check of what goes by the default StorageClass.
func withDefaultStorageClass(
	inspect func(context.Context, *clusterState, *storagev1.StorageClass) finding,
) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		class, err := s.defaultStorageClass(ctx)
		switch {
		case err != nil:
			return s.refusalFinding(err)
		case class == nil:
			return undetermined("there is no default StorageClass", "see storage-classes")
		}
		return inspect(ctx, s, class)
	}
}

// inspectCSIDriver looks at what makes the default class's volumes.
func inspectCSIDriver(ctx context.Context, s *clusterState, class *storagev1.StorageClass) finding {
	drivers, err := s.client.CSIDrivers()
	if err != nil {
		return errorFinding(err, checkRightsFile)
	}
	driver, err := drivers.Get(ctx, class.Provisioner)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return fail(fmt.Sprintf("StorageClass %s names %s, and there is no CSIDriver of that name", class.Name, class.Provisioner),
			"install the driver, or take a class whose driver is there; what is no CSI driver gives neither snapshots nor attach limits")
	case err != nil:
		return errorFinding(err, checkRightsFile)
	}
	return pass(driver.Name + " is installed")
}

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func inspectSnapshotClass(ctx context.Context, s *clusterState, class *storagev1.StorageClass) finding {
	snapshotClasses, err := s.client.VolumeSnapshotClasses()
	if err != nil {
		return errorFinding(err, checkRightsFile)
	}
	found, err := listUpTo(ctx, snapshotClasses.Find, kube.Selection{}, maxObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warn("the cluster has no VolumeSnapshotClasses", "see create-snapshot")
	case err != nil:
		return errorFinding(err, checkRightsFile)
	}
	matching := ""
	for _, snapshotClass := range found {
		if snapshotClass.Driver == class.Provisioner {
			if snapshotClass.Annotations[defaultSnapshotClass] == "true" {
				return pass(snapshotClass.Name + " is the default of " + class.Provisioner)
			}
			matching = snapshotClass.Name
		}
	}
	if matching != "" {
		return fail("none of "+class.Provisioner+" is the default", "annotate "+matching+" with "+defaultSnapshotClass+
			"=true, or name snapshot_class in the cloud_properties of disks")
	}
	return fail("there is none of "+class.Provisioner,
		"make a VolumeSnapshotClass of that driver, if it takes snapshots: snapshot_disk answers NotImplemented until then")
}

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

// findDefaultStorageClass returns the StorageClass that the API server sets on a PVC without a class, in a dry run. The CPI has no
// permission to list StorageClasses. It returns nil if there is no default.
func (s *clusterState) findDefaultStorageClass(ctx context.Context) (*storagev1.StorageClass, error) {
	samples := s.newSamples(ctx)
	pvc, err := s.client.PVCs.DryRunCreate(ctx, samples.buildDiskPVC().PVC)
	if isExcludedClass(err) {
		return nil, nil //nolint:nilnil // there is none that disks can have
	}
	if err != nil || pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		return nil, err
	}
	return s.client.StorageClasses().Get(ctx, *pvc.Spec.StorageClassName)
}

// isExcludedClass reports whether the limits of the admission policy exclude the StorageClass of a PVC.
func isExcludedClass(err error) bool {
	return err != nil && strings.Contains(err.Error(), "rule storage-class:")
}

// inspectStorageClasses checks the default StorageClass, and the StorageClasses and VolumeAttributesClasses of existing disks.
func inspectStorageClasses(ctx context.Context, s *clusterState) finding {
	defaultClass, err := s.defaultStorageClass(ctx)
	if err != nil {
		return s.rejectionFinding(err)
	}
	pvcs, err := s.pvcs(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	known := map[string]*storagev1.StorageClass{}
	defaultName := ""
	if defaultClass != nil {
		defaultName = defaultClass.Name
		known[defaultName] = defaultClass
	}
	for _, name := range classesOf(pvcs, func(spec corev1.PersistentVolumeClaimSpec) *string { return spec.StorageClassName }) {
		if known[name] != nil {
			continue
		}
		class, err := s.client.StorageClasses().Get(ctx, name)
		switch {
		case errors.Is(err, kube.ErrNotFound):
			return fail("disks use StorageClass "+name+", which does not exist", "recreate it; without it, the disks cannot be resized")
		case err != nil:
			return errorFinding(err, callPermissionsFile)
		}
		known[name] = class
	}
	attributesClass := func(spec corev1.PersistentVolumeClaimSpec) *string { return spec.VolumeAttributesClassName }
	for _, name := range classesOf(pvcs, attributesClass) {
		_, err := s.client.VolumeAttributesClasses().Get(ctx, name)
		switch {
		case errors.Is(err, kube.ErrNotFound):
			return fail("disks use VolumeAttributesClass "+name+", which does not exist", "recreate it, or use another class in their disk types")
		case err != nil:
			return errorFinding(err, callPermissionsFile)
		}
	}
	if defaultName == "" {
		return fail("the cluster has "+noDefaultStorageClass, adviceDefaultStorageClass)
	}
	return evaluateStorageClasses(known, defaultName)
}

// noDefaultStorageClass is part of the check's detail, and of the admission policy's message about a disk without a StorageClass.
const (
	noDefaultStorageClass     = "no default StorageClass"
	adviceDefaultStorageClass = "annotate one with storageclass.kubernetes.io/is-default-class=true, " +
		"or set storage_class in the cloud_properties of every disk type, and in ephemeral_disk"
)

// classesOf returns the names that classOf returns for the PVCs, sorted.
func classesOf(pvcs []*corev1.PersistentVolumeClaim, classOf func(corev1.PersistentVolumeClaimSpec) *string) []string {
	names := map[string]bool{}
	for _, pvc := range pvcs {
		if class := classOf(pvc.Spec); class != nil && *class != "" {
			names[*class] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func evaluateStorageClasses(known map[string]*storagev1.StorageClass, defaultName string) finding {
	var messages, remedies []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		class := known[name]
		description := name + " (" + class.Provisioner
		if name == defaultName {
			description = name + " (the default, " + class.Provisioner
		}
		if class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate {
			description += ", binds immediately"
			remedies = append(remedies, name+": with volumeBindingMode WaitForFirstConsumer, volumes are created where their VMs run")
		}
		if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
			description += ", no expansion"
			remedies = append(remedies, name+": with allowVolumeExpansion: true, disks are resized in place instead of copied")
		}
		messages = append(messages, description+")")
	}
	if len(remedies) > 0 {
		return warn(strings.Join(messages, "; "), strings.Join(remedies, "; "))
	}
	return pass(strings.Join(messages, "; "))
}

// withDefaultStorageClass returns a check that requires the default StorageClass.
func withDefaultStorageClass(
	inspect func(context.Context, *clusterState, *storagev1.StorageClass) finding,
) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		class, err := s.defaultStorageClass(ctx)
		switch {
		case err != nil:
			return s.rejectionFinding(err)
		case class == nil:
			return undetermined("there is no default StorageClass", "see storage-classes")
		}
		return inspect(ctx, s, class)
	}
}

// inspectCSIDriver checks that the CSI driver of the default StorageClass is installed.
func inspectCSIDriver(ctx context.Context, s *clusterState, class *storagev1.StorageClass) finding {
	driver, err := s.client.CSIDrivers().Get(ctx, class.Provisioner)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return warn(fmt.Sprintf("CSIDriver %s of StorageClass %s does not exist", class.Provisioner, class.Name),
			"if it is a CSI driver, install it; other provisioners, for example local-path, have no snapshots and no volume limits")
	case err != nil:
		return errorFinding(err, checkPermissionsFile)
	}
	return pass(driver.Name + " is installed")
}

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func inspectSnapshotClass(ctx context.Context, s *clusterState, class *storagev1.StorageClass) finding {
	found, err := listUpTo(ctx, s.client.VolumeSnapshotClasses().Find, kube.Selection{}, maxObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warn("the cluster has no VolumeSnapshotClasses", "see create-snapshot")
	case err != nil:
		return errorFinding(err, checkPermissionsFile)
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
		return fail("no VolumeSnapshotClass of "+class.Provisioner+" is the default", "annotate "+matching+" with "+defaultSnapshotClass+
			"=true, or set snapshot_class in the cloud_properties of disks")
	}
	return fail("there is no VolumeSnapshotClass of "+class.Provisioner,
		"create one if the driver supports snapshots; until then, snapshot_disk returns NotImplemented")
}

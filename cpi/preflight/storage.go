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

// defaultClass finds out what a disk without a class gets: the API server says so when it is asked for one. The right to
// list classes is none of the CPI's.
func (s *subject) defaultClass(ctx context.Context) (*storagev1.StorageClass, error) {
	of := s.samples(ctx)
	claim, err := s.client.Claims.Try(ctx, of.disk(of.id))
	if err != nil || claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, err
	}
	return s.storageClass(ctx, *claim.Spec.StorageClassName)
}

func (s *subject) storageClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	among, err := s.client.StorageClasses()
	if err != nil {
		return nil, err
	}
	return among.Get(ctx, name)
}

// lookAtClasses looks at the default class, and at those of disks that are there.
func lookAtClasses(ctx context.Context, s *subject) finding {
	class, err := s.class(ctx)
	if err != nil {
		return s.refused(err)
	}
	claims, err := s.claims(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	known := map[string]*storagev1.StorageClass{}
	standard := ""
	if class != nil {
		standard = class.Name
		known[standard] = class
	}
	for _, name := range named(claims) {
		if known[name] != nil {
			continue
		}
		class, err := s.storageClass(ctx, name)
		switch {
		case errors.Is(err, kube.ErrNotFound):
			return fails("disks have the StorageClass "+name+", which is gone", "make it again: such disks cannot be grown, nor copied within it")
		case err != nil:
			return failed(err, rightsOfCalls)
		}
		known[name] = class
	}
	if standard == "" {
		return fails("the cluster has "+noDefaultClass, makeDefaultClass)
	}
	return judge(known, standard)
}

// noDefaultClass is in what the check says, and in what the admission policy says of a disk without a class.
const (
	noDefaultClass   = "no default StorageClass"
	makeDefaultClass = "annotate one with storageclass.kubernetes.io/is-default-class=true, " +
		"or name storage_class in the cloud_properties of every disk type, and of ephemeral_disk"
)

// named are the classes that the claims name, in order.
func named(claims []*corev1.PersistentVolumeClaim) []string {
	names := map[string]bool{}
	for _, claim := range claims {
		if claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != "" {
			names[*claim.Spec.StorageClassName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func judge(known map[string]*storagev1.StorageClass, standard string) finding {
	var said, advice []string
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
		said = append(said, about+")")
	}
	if len(advice) > 0 {
		return warns(strings.Join(said, "; "), strings.Join(advice, "; "))
	}
	return ok(strings.Join(said, "; "))
}

// ofDefaultClass is a check of what goes by the default StorageClass.
func ofDefaultClass(look func(context.Context, *subject, *storagev1.StorageClass) finding) func(context.Context, *subject) finding {
	return func(ctx context.Context, s *subject) finding {
		class, err := s.class(ctx)
		switch {
		case err != nil:
			return s.refused(err)
		case class == nil:
			return unknown("there is no default StorageClass", "see storage-classes")
		}
		return look(ctx, s, class)
	}
}

// lookAtDriver looks at what makes the default class's volumes.
func lookAtDriver(ctx context.Context, s *subject, class *storagev1.StorageClass) finding {
	drivers, err := s.client.CSIDrivers()
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	driver, err := drivers.Get(ctx, class.Provisioner)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return fails(fmt.Sprintf("StorageClass %s names %s, and there is no CSIDriver of that name", class.Name, class.Provisioner),
			"install the driver, or take a class whose driver is there; what is no CSI driver gives neither snapshots nor attach limits")
	case err != nil:
		return failed(err, rightsOfChecks)
	}
	return ok(driver.Name + " is installed")
}

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func lookAtSnapshotClass(ctx context.Context, s *subject, class *storagev1.StorageClass) finding {
	among, err := s.client.SnapshotClasses()
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	found, err := some(ctx, among.Find, kube.Selection{}, manyObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return warns("the cluster has no VolumeSnapshotClasses", "see create-snapshot")
	case err != nil:
		return failed(err, rightsOfChecks)
	}
	of := ""
	for _, each := range found {
		if each.Driver == class.Provisioner {
			if each.Annotations[defaultSnapshotClass] == "true" {
				return ok(each.Name + " is the default of " + class.Provisioner)
			}
			of = each.Name
		}
	}
	if of != "" {
		return fails("none of "+class.Provisioner+" is the default", "annotate "+of+" with "+defaultSnapshotClass+
			"=true, or name snapshot_class in the cloud_properties of disks")
	}
	return fails("there is none of "+class.Provisioner,
		"make a VolumeSnapshotClass of that driver, if it takes snapshots: snapshot_disk answers NotImplemented until then")
}

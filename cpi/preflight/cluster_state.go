package preflight

import (
	"context"
	"math"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Limits for the number of objects of one kind that are read. There is no limit for objects of the CPI.
const (
	maxObjects = 1000
	maxPods    = 5000
	noLimit    = math.MaxInt
)

// clusterState is the configuration and the state of the cluster. State that several checks need is requested once.
type clusterState struct {
	config         cpi.Config
	client         *kube.Client
	requestedImage string // the image of the option -image, or ""

	nodeSelector map[string]string // of the deep checks

	server func(context.Context) (kube.ServerInfo, error)
	nodes  func(context.Context) ([]*corev1.Node, error)
	pods   func(context.Context) ([]*corev1.Pod, error)
	pvcs   func(context.Context) ([]*corev1.PersistentVolumeClaim, error)
	// limits are those of the admission policy, or none if they cannot be read.
	limits func(context.Context) (admissionLimits, error)
	// defaultStorageClass is the cluster's default StorageClass, or nil.
	defaultStorageClass func(context.Context) (*storagev1.StorageClass, error)
}

func newClusterState(config cpi.Config, client *kube.Client, image string) *clusterState {
	s := &clusterState{config: config, client: client, requestedImage: image}
	cpiObjects := kube.Selection{Labels: manifest.ManagedSelector}
	s.server = memoize(client.GetServerInfo)
	s.nodes = memoize(func(ctx context.Context) ([]*corev1.Node, error) {
		return listUpTo(ctx, client.Nodes.Find, kube.Selection{}, maxObjects)
	})
	s.pods = memoize(func(ctx context.Context) ([]*corev1.Pod, error) {
		return listUpTo(ctx, client.Pods.Find, cpiObjects, noLimit)
	})
	s.pvcs = memoize(func(ctx context.Context) ([]*corev1.PersistentVolumeClaim, error) {
		return listUpTo(ctx, client.PVCs.Find, cpiObjects, noLimit)
	})
	s.limits = memoize(s.readAdmissionLimits)
	s.defaultStorageClass = memoize(s.findDefaultStorageClass)
	return s
}

// memoize returns a function that calls get once, with the context of the first call, and always returns that result.
func memoize[T any](get func(context.Context) (T, error)) func(context.Context) (T, error) {
	var once sync.Once
	var result T
	var failure error
	return func(ctx context.Context) (T, error) {
		once.Do(func() { result, failure = get(ctx) })
		return result, failure
	}
}

// listUpTo returns the selected objects, but not more than limit.
func listUpTo[T any](
	ctx context.Context, find func(context.Context, kube.Selection, func(T) bool) (T, bool, error), selection kube.Selection, limit int,
) ([]T, error) {

	var found []T
	_, _, err := find(ctx, selection, func(item T) bool {
		found = append(found, item)
		return len(found) == limit
	})
	return found, err
}

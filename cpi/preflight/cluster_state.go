package preflight

import (
	"context"
	"math"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// How many objects of a kind are looked at, at the most. Those that the CPI has made are looked at all.
const (
	maxObjects = 1000
	maxPods    = 5000
	noLimit    = math.MaxInt
)

// clusterState is what the checks look at. What several of them need is asked for once.
type clusterState struct {
	config         cpi.Config
	client         *kube.Client
	requestedImage string // that was asked for, or ""

	server func(context.Context) (kube.ServerInfo, error)
	nodes  func(context.Context) ([]*corev1.Node, error)
	pods   func(context.Context) ([]*corev1.Pod, error)
	pvcs   func(context.Context) ([]*corev1.PersistentVolumeClaim, error)
	// defaultStorageClass is the cluster's default StorageClass, or nil.
	defaultStorageClass func(context.Context) (*storagev1.StorageClass, error)
}

func newClusterState(config cpi.Config, client *kube.Client, image string) *clusterState {
	s := &clusterState{config: config, client: client, requestedImage: image}
	ours := kube.Selection{Labels: manifest.LabelManagedBy + "=" + manifest.ManagedBy}
	s.server = memoize(client.GetServerInfo)
	s.nodes = memoize(func(ctx context.Context) ([]*corev1.Node, error) {
		return listUpTo(ctx, client.Nodes.Find, kube.Selection{}, maxObjects)
	})
	s.pods = memoize(func(ctx context.Context) ([]*corev1.Pod, error) {
		return listUpTo(ctx, client.Pods.Find, ours, noLimit)
	})
	s.pvcs = memoize(func(ctx context.Context) ([]*corev1.PersistentVolumeClaim, error) {
		return listUpTo(ctx, client.PVCs.Find, ours, noLimit)
	})
	s.defaultStorageClass = memoize(s.findDefaultStorageClass)
	return s
}

// memoize returns what ask returned when it was called first, with whatever context.
func memoize[T any](get func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mutex sync.Mutex
	var done bool
	var answer T
	var failure error
	return func(ctx context.Context) (T, error) {
		mutex.Lock()
		defer mutex.Unlock()
		if !done {
			answer, failure = get(ctx)
			done = true
		}
		return answer, failure
	}
}

// listUpTo returns the first of the selected objects, so many at the most.
func listUpTo[T any](
	ctx context.Context, find func(context.Context, kube.Selection, func(T) bool) (T, bool, error), selection kube.Selection, most int,
) ([]T, error) {

	var found []T
	_, _, err := find(ctx, selection, func(each T) bool {
		found = append(found, each)
		return len(found) == most
	})
	return found, err
}

// findPod returns the Pod of this name, or nil.
func findPod(pods []*corev1.Pod, name string) *corev1.Pod {
	for _, each := range pods {
		if each.Name == name {
			return each
		}
	}
	return nil
}

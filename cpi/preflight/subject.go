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
	manyObjects = 1000
	manyPods    = 5000
	allOfThem   = math.MaxInt
)

// subject is what the checks look at. What several of them need is asked for once.
type subject struct {
	config cpi.Config
	client *kube.Client
	image  string // that was asked for, or ""

	server func(context.Context) (kube.Server, error)
	nodes  func(context.Context) ([]*corev1.Node, error)
	pods   func(context.Context) ([]*corev1.Pod, error)
	claims func(context.Context) ([]*corev1.PersistentVolumeClaim, error)
	// class is the cluster's default StorageClass, or nil.
	class func(context.Context) (*storagev1.StorageClass, error)
}

func newSubject(config cpi.Config, client *kube.Client, image string) *subject {
	s := &subject{config: config, client: client, image: image}
	ours := kube.Selection{Labels: manifest.LabelManagedBy + "=" + manifest.ManagedBy}
	s.server = once(client.Server)
	s.nodes = once(func(ctx context.Context) ([]*corev1.Node, error) {
		return some(ctx, client.Nodes.Find, kube.Selection{}, manyObjects)
	})
	s.pods = once(func(ctx context.Context) ([]*corev1.Pod, error) { return some(ctx, client.Pods.Find, ours, allOfThem) })
	s.claims = once(func(ctx context.Context) ([]*corev1.PersistentVolumeClaim, error) {
		return some(ctx, client.Claims.Find, ours, allOfThem)
	})
	s.class = once(s.defaultClass)
	return s
}

// once returns what ask returned when it was called first, with whatever context.
func once[T any](ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mutex sync.Mutex
	var done bool
	var answer T
	var failure error
	return func(ctx context.Context) (T, error) {
		mutex.Lock()
		defer mutex.Unlock()
		if !done {
			answer, failure = ask(ctx)
			done = true
		}
		return answer, failure
	}
}

// some returns the first of the selected objects, so many at the most.
func some[T any](
	ctx context.Context, find func(context.Context, kube.Selection, func(T) bool) (T, bool, error), which kube.Selection, most int,
) ([]T, error) {

	var found []T
	_, _, err := find(ctx, which, func(each T) bool {
		found = append(found, each)
		return len(found) == most
	})
	return found, err
}

// pod returns the Pod of this name, or nil.
func pod(among []*corev1.Pod, name string) *corev1.Pod {
	for _, each := range among {
		if each.Name == name {
			return each
		}
	}
	return nil
}

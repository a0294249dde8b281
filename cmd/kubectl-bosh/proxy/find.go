package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// What becomes of an address, for errors.Is.
var (
	// ErrNobody: no machine of the namespace has the address, and no Service with machines behind it.
	ErrNobody = errors.New("no machine has this address")
	// ErrAway: whoever has the address does not run now.
	ErrAway = errors.New("does not run")
	// ErrNoPort: the Service with the address has no such port.
	ErrNoPort = errors.New("no such port")
)

// Target is a port of a machine's Pod.
type Target struct {
	Pod  *corev1.Pod
	Port int32
	// Service is the Service that the machine was found behind; "" when the address is the machine's own.
	Service string
}

func (t Target) String() string {
	text := fmt.Sprintf("%s:%d", t.Pod.Name, t.Port)
	if t.Service != "" {
		text += " (Service " + t.Service + ")"
	}
	return text
}

// Finder finds the machines behind addresses. Machines come and go: it looks anew each time.
type Finder struct {
	Client *kube.Client
	// Wait is how long it waits for a machine that is not up, as while one is made anew.
	Wait time.Duration

	mutex sync.Mutex
	found map[string]bool // addresses that were somebody's
}

// machines selects all machines of the namespace, whichever director's.
var machines = kube.Selection{
	Labels: manifest.LabelManagedBy + "=" + manifest.ManagedBy + "," + manifest.LabelRole + "=" + manifest.RoleVM,
}

// Find returns the machine that is behind this port of the address, which is an IP address or a Service's DNS name.
// Pods whose UID is in passedOver are as if they were gone.
//
// An address that belongs to a machine which does not run, or that belonged to one before, is waited for.
func (f *Finder) Find(ctx context.Context, host string, port int32, passedOver map[types.UID]bool) (Target, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Wait)
	defer cancel()
	var found Target
	var why error
	err := f.Client.Pods.Wait(ctx, machines, nil, func(pods []*corev1.Pod) (bool, error) {
		found, why = f.choose(ctx, host, port, without(pods, passedOver))
		if errors.Is(why, ErrAway) || errors.Is(why, ErrNobody) && f.known(host) {
			return false, nil
		}
		return true, why
	})
	switch {
	case errors.Is(err, kube.ErrTimeout) && why != nil:
		return Target{}, fmt.Errorf("%w; waited %s for it", why, f.Wait)
	case err != nil:
		return Target{}, err
	}
	f.remember(host)
	return found, nil
}

// choose returns the machine behind the address among these.
func (f *Finder) choose(ctx context.Context, host string, port int32, pods []*corev1.Pod) (Target, error) {
	pod, err := holder(host, pods)
	if err == nil {
		return Target{Pod: pod, Port: port}, nil
	}
	if !errors.Is(err, ErrNobody) {
		return Target{}, err
	}
	services, err := f.Client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return Target{}, err
	}
	for _, service := range services.Items {
		if answersTo(service, host) {
			return behind(service, port, pods)
		}
	}
	return Target{}, fmt.Errorf("%w in namespace %s, and no Service", ErrNobody, f.Client.Namespace)
}

func without(pods []*corev1.Pod, passedOver map[types.UID]bool) []*corev1.Pod {
	left := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if !passedOver[pod.UID] {
			left = append(left, pod)
		}
	}
	return left
}

func (f *Finder) known(host string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.found[host]
}

func (f *Finder) remember(host string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.found == nil {
		f.found = map[string]bool{}
	}
	f.found[host] = true
}

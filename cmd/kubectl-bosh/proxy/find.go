package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Kinds of errors of Find, for errors.Is.
var (
	// ErrUnknownAddress means that the address belongs to no VM in the namespace, and to no Service in front of VMs.
	ErrUnknownAddress = errors.New("unknown address")
	// ErrNotRunning means that the VM with the address is not running now.
	ErrNotRunning = errors.New("no running VM")
	// ErrNoPort means that the Service with the address does not have the port.
	ErrNoPort = errors.New("no such port")
)

// Target is a port of a VM Pod.
type Target struct {
	Pod  manifest.VMPod
	Port int32
	// Service is the name of the Service with the address, or "" if the VM has it.
	Service string
}

func (t Target) String() string {
	if t.Service == "" {
		return fmt.Sprintf("%s:%d", t.Pod.Name, t.Port)
	}
	return fmt.Sprintf("%s:%d (Service %s)", t.Pod.Name, t.Port, t.Service)
}

// Finder finds the VMs behind addresses. It reads the Pods and Services for each connection, because VMs are recreated.
type Finder struct {
	Client *kube.Client
	// Wait is how long to wait for a VM that is not running, for example while it is recreated.
	Wait time.Duration

	seen sync.Map // addresses that a VM or Service had
}

// allVMs selects the VMs of all directors in the namespace.
var allVMs = kube.Selection{
	Labels: manifest.ManagedSelector + "," + manifest.LabelRole + "=" + manifest.RoleVM,
}

// Find returns the VM behind this port of the host, which is an IP address or the DNS name of a Service. It ignores Pods with excluded
// UIDs.
//
// If the address belongs to a VM that is not running, or previously belonged to a VM or Service, Find waits for a running VM.
func (f *Finder) Find(ctx context.Context, host string, port int32, excluded map[types.UID]bool) (Target, error) {
	listed, err := f.Client.Pods.List(ctx, allVMs)
	if err != nil {
		return Target{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, f.Wait)
	defer cancel()
	var found Target
	var lastErr error
	err = f.Client.Pods.Wait(bounded, allVMs, &listed, func(pods []*corev1.Pod) (bool, error) {
		remaining := slices.DeleteFunc(manifest.VMPods(pods), func(pod manifest.VMPod) bool { return excluded[pod.UID] })
		found, lastErr = f.choose(ctx, host, port, remaining)
		_, seen := f.seen.Load(host)
		if errors.Is(lastErr, ErrNotRunning) || errors.Is(lastErr, ErrUnknownAddress) && seen {
			return false, nil
		}
		return true, lastErr
	})
	switch {
	case errors.Is(err, kube.ErrTimeout) && lastErr != nil:
		return Target{}, fmt.Errorf("%w (waited %s)", lastErr, f.Wait)
	case err != nil:
		return Target{}, err
	}
	f.seen.Store(host, true)
	return found, nil
}

// choose returns the VM behind the address among these Pods.
func (f *Finder) choose(ctx context.Context, host string, port int32, pods []manifest.VMPod) (Target, error) {
	pod, err := vmWithAddress(host, pods)
	if err == nil {
		return Target{Pod: pod, Port: port}, nil
	}
	if !errors.Is(err, ErrUnknownAddress) {
		return Target{}, err
	}
	services, err := f.Client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return Target{}, err
	}
	for _, service := range services.Items {
		if hasHost(service, host) {
			return vmBehindService(service, port, pods)
		}
	}
	return Target{}, newFindError(ErrUnknownAddress, "no VM or Service in namespace %s has this address", f.Client.Namespace)
}

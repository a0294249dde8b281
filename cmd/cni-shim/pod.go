package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

const userAgent = "bosh-kubernetes-cpi"

// podName identifies the Pod of a call, by the keys of CNI_ARGS that container runtimes set for the kubelet.
type podName struct {
	namespace, name, uid string
}

func parsePodName(a arguments) podName {
	return podName{a.get("K8S_POD_NAMESPACE"), a.get("K8S_POD_NAME"), a.get("K8S_POD_UID")}
}

func (p podName) String() string { return p.namespace + "/" + p.name }

// isSet reports whether the call is for a Pod.
func (p podName) isSet() bool { return p.namespace != "" && p.name != "" }

// staticPodHashAnnotation is the annotation of a mirror Pod with the UID of the static Pod.
const staticPodHashAnnotation = "kubernetes.io/config.hash"

// matches reports whether found is this Pod, and not another Pod of the same name.
func (p podName) matches(found *corev1.Pod) bool {
	return p.uid == "" || p.uid == string(found.UID) || p.uid == found.Annotations[staticPodHashAnnotation]
}

// unauthorizedRetryInterval is how long to wait after a token was rejected, before rereading the kubeconfig: package install renews
// the token.
const unauthorizedRetryInterval = 250 * time.Millisecond

// requestedAddresses returns the addresses that the Pod requests, or none if it does not have the annotation.
func (c config) requestedAddresses(name podName) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Kubernetes.Timeout.Duration)
	defer cancel()
	pod, err := c.getPod(ctx, name)
	if err != nil {
		return nil, c.classifyError(name, err)
	}
	if !name.matches(pod) {
		return nil, newError(types.ErrUnknownContainer,
			"Pod %s was replaced by another Pod with the same name: its UID is %s, not %s", name, pod.UID, name.uid)
	}
	value, requested := pod.Annotations[c.Annotation]
	if !requested {
		return nil, nil
	}
	addresses, err := parseAddresses(value)
	if err != nil {
		return nil, newError(codeInvalidRequest, "annotation %s of Pod %s has the invalid value %q: %v; use \"ip\" or \"ip4,ip6\"",
			c.Annotation, name, value, err)
	}
	return addresses, nil
}

// getPod waits for another token while the API server rejects the credentials. If it then does not respond, the error is the rejection.
func (c config) getPod(ctx context.Context, name podName) (*corev1.Pod, error) {
	var rejection error
	for {
		client, err := c.newClient(name.namespace)
		if err != nil {
			return nil, err
		}
		pod, err := client.Pods.Get(ctx, name.name)
		switch {
		case err != nil && ctx.Err() != nil && rejection != nil:
			return nil, rejection
		case !errors.Is(err, kube.ErrUnauthorized):
			return pod, err
		}
		rejection = err
		select {
		case <-ctx.Done():
			return nil, rejection
		case <-time.After(unauthorizedRetryInterval):
		}
	}
}

// newClient returns a client for the kubeconfig, without sending a request.
func (c config) newClient(namespace string) (*kube.Client, error) {
	options := kube.Options{KubeconfigPath: c.Kubernetes.Kubeconfig, Context: c.Kubernetes.Context, Namespace: namespace}
	client, err := kube.New(options, userAgent, c.Kubernetes.Timeout.Duration)
	if err != nil {
		return nil, newError(types.ErrInvalidNetworkConfig, "cannot use kubeconfig %s: %v", c.Kubernetes.Kubeconfig, err)
	}
	return client, nil
}

// classifyError returns the error with its code. Only code 11, ErrTryAgainLater, means that a retry may succeed (specification,
// section 5: Result Types, Error).
func (c config) classifyError(name podName, err error) error {
	var known *types.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, kube.ErrNotFound):
		return newError(types.ErrUnknownContainer, "Pod %s does not exist", name)
	case errors.Is(err, kube.ErrUnauthorized):
		return newError(types.ErrTryAgainLater,
			"the API server still rejects the credentials of kubeconfig %s after %s of retries: %v",
			c.Kubernetes.Kubeconfig, c.Kubernetes.Timeout.Duration, err)
	case errors.Is(err, kube.ErrDenied):
		return newError(codeForbidden,
			"the API server denied access to the Pod; the user of kubeconfig %s needs permission to get pods: %v",
			c.Kubernetes.Kubeconfig, err)
	case errors.Is(err, kube.ErrTimeout), errors.Is(err, kube.ErrUnreachable):
		return newError(types.ErrTryAgainLater,
			"the API server of kubeconfig %s did not respond within %s; cannot read the requested addresses of Pod %s: %v",
			c.Kubernetes.Kubeconfig, c.Kubernetes.Timeout.Duration, name, err)
	}
	return newError(types.ErrInternal, "cannot read the requested addresses of Pod %s: %v", name, err)
}

package main

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/kube"
)

// podName is the Pod that a call is for, as the kubelet's runtimes name it in CNI_ARGS.
type podName struct {
	namespace, name, uid string
}

func podOf(a arguments) podName {
	return podName{a.get("K8S_POD_NAMESPACE"), a.get("K8S_POD_NAME"), a.get("K8S_POD_UID")}
}

func (p podName) String() string { return p.namespace + "/" + p.name }

// known reports whether the call is for a Pod of Kubernetes at all.
func (p podName) known() bool { return p.namespace != "" && p.name != "" }

// mirrorOf is on the API's picture of a static Pod, and is that Pod's UID on its node.
const mirrorOf = "kubernetes.io/config.hash"

// is reports whether the API's Pod is this one, and not another of the same name.
func (p podName) is(found *corev1.Pod) bool {
	return p.uid == "" || p.uid == string(found.UID) || p.uid == found.Annotations[mirrorOf]
}

// retryUnauthorized is the pause before a kubeconfig whose token was refused is read again: package
// install renews it.
const retryUnauthorized = 250 * time.Millisecond

// wanted returns the addresses that the Pod asks for; none when it has no annotation.
func (c config) wanted(name podName) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Kubernetes.Timeout.Duration)
	defer cancel()
	pod, err := c.get(ctx, name)
	if err != nil {
		return nil, c.explain(name, err)
	}
	if !name.is(pod) {
		return nil, failure(types.ErrUnknownContainer, "Pod %s is another one by now: its UID is %s, not %s", name, pod.UID, name.uid)
	}
	value, asked := pod.Annotations[c.Annotation]
	if !asked {
		return nil, nil
	}
	addresses, err := parseAddresses(value)
	if err != nil {
		return nil, failure(codeRequest, "annotation %s of Pod %s is %q, but it takes \"ip\" or \"ip4,ip6\": %v", c.Annotation, name, value, err)
	}
	return addresses, nil
}

func (c config) get(ctx context.Context, name podName) (*corev1.Pod, error) {
	for {
		cluster, err := c.client(name.namespace)
		if err != nil {
			return nil, err
		}
		pod, err := cluster.Pods.Get(ctx, name.name)
		if !errors.Is(err, kube.ErrUnauthorized) {
			return pod, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryUnauthorized):
		}
	}
}

// client sends no request. An error about the kubeconfig's content is not repeated unless it is known
// to quote nothing of it.
func (c config) client(namespace string) (*kube.Client, error) {
	options := kube.Options{KubeconfigPath: c.Kubernetes.Kubeconfig, Context: c.Kubernetes.Context, Namespace: namespace}
	cluster, err := kube.New(options, c.Kubernetes.Timeout.Duration)
	if err == nil {
		return cluster, nil
	}
	reason := errors.New("check its syntax, its current context and its certificates")
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		reason = file
	} else if inner := errors.Unwrap(err); clientcmd.IsConfigurationInvalid(inner) || clientcmd.IsContextNotFound(inner) {
		reason = inner
	}
	return nil, failure(types.ErrInvalidNetworkConfig, "the kubeconfig %s cannot be used: %v", c.Kubernetes.Kubeconfig, reason)
}

// explain gives an error its code, of which only 11 promises that another try may help (specification,
// section 5: Result Types, Error).
func (c config) explain(name podName, err error) error {
	var known *types.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, kube.ErrNotFound):
		return failure(types.ErrUnknownContainer, "Pod %s does not exist (any more)", name)
	case errors.Is(err, kube.ErrUnauthorized):
		return failure(types.ErrTryAgainLater,
			"the API server does not accept the credentials of %s, not after %s either: %v",
			c.Kubernetes.Kubeconfig, c.Kubernetes.Timeout.Duration, err)
	case errors.Is(err, kube.ErrRefused):
		return failure(codeForbidden,
			"the API server refuses to show the Pod: the user of %s needs the right to get pods: %v", c.Kubernetes.Kubeconfig, err)
	case errors.Is(err, kube.ErrTimeout), errors.Is(err, kube.ErrUnreachable):
		return failure(types.ErrTryAgainLater,
			"the API server of %s did not answer within %s whether Pod %s asks for an address: %v",
			c.Kubernetes.Kubeconfig, c.Kubernetes.Timeout.Duration, name, err)
	}
	return failure(types.ErrInternal, "read the addresses of Pod %s: %v", name, err)
}

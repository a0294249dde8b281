package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options select an API server, a namespace, and how to authenticate.
type Options struct {
	// Kubeconfig is the content of a kubeconfig file. Without it and KubeconfigPath, the service
	// account of the Pod that the CPI runs in is used.
	Kubeconfig string `json:"kubeconfig"`
	// KubeconfigPath is the path of a kubeconfig file.
	KubeconfigPath string `json:"kubeconfig_path"`
	// Context is the kubeconfig's context to use; its current one by default.
	Context string `json:"context"`
	// Namespace holds every object; by default that of the context, or of the service account.
	Namespace string `json:"namespace"`
}

// Validate returns an error for options that exclude or require each other. It reads no files and sends no requests.
func (o Options) Validate() error {
	switch {
	case o.Kubeconfig != "" && o.KubeconfigPath != "":
		return errors.New("kubernetes.kubeconfig and kubernetes.kubeconfig_path exclude each other; remove one")
	case o.Context != "" && o.Kubeconfig == "" && o.KubeconfigPath == "":
		return errors.New("kubernetes.context requires kubernetes.kubeconfig or kubernetes.kubeconfig_path")
	}
	return nil
}

// The files that the kubelet mounts into a Pod with a service account, see
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.
const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	inClusterURL      = "https://kubernetes.default.svc:443"
	// apiServerURLFile is where a VM stores the API server's URL: cpi/node/lib/api-server.sh.
	apiServerURLFile = "/etc/bosh-kubernetes-cpi/api-server"
)

// restConfig returns the connection settings and the namespace.
func (o Options) restConfig() (*rest.Config, string, error) {
	if o.Kubeconfig == "" && o.KubeconfigPath == "" {
		return inClusterConfig(o.Namespace)
	}
	var source clientcmd.ClientConfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	if o.Kubeconfig != "" {
		raw, err := clientcmd.Load([]byte(o.Kubeconfig))
		if err != nil {
			return nil, "", fmt.Errorf("kubernetes.kubeconfig is not a valid kubeconfig: %w", err)
		}
		source = clientcmd.NewNonInteractiveClientConfig(*raw, o.Context, overrides, nil)
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.KubeconfigPath}
		source = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	}
	config, err := source.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf(
			"cannot load the kubeconfig (check kubernetes.kubeconfig, kubernetes.kubeconfig_path and kubernetes.context): %w", err)
	}
	namespace := o.Namespace
	if namespace == "" {
		if namespace, _, err = source.Namespace(); err != nil {
			return nil, "", fmt.Errorf("cannot read the namespace of the kubeconfig: %w", err)
		}
	}
	return config, namespace, nil
}

// inClusterConfig is rest.InClusterConfig without its dependence on KUBERNETES_SERVICE_HOST: the director starts a CPI with an
// empty environment. The client reads the token file again while the process runs, since the kubelet renews the token.
func inClusterConfig(namespace string) (*rest.Config, string, error) {
	token := serviceAccountDir + "/token"
	if _, err := os.Stat(token); err != nil {
		return nil, "", fmt.Errorf("no kubeconfig is configured, and this is not a Pod with a service account; "+
			"set kubernetes.kubeconfig or kubernetes.kubeconfig_path: %w", err)
	}
	server, err := apiServerURL(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), apiServerURLFile)
	if err != nil {
		return nil, "", err
	}
	if namespace == "" {
		own, err := os.ReadFile(serviceAccountDir + "/namespace")
		if err != nil {
			return nil, "", fmt.Errorf("cannot read the service account's namespace; set kubernetes.namespace: %w", err)
		}
		namespace = string(own)
	}
	return &rest.Config{
		Host:            server,
		BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: serviceAccountDir + "/ca.crt"},
	}, namespace, nil
}

// apiServerURL returns the API server's URL: from the variables that the kubelet sets in a container; or from the file that a VM
// writes when it boots; or else its DNS name, which needs the cluster's name servers.
func apiServerURL(host, port, file string) (string, error) {
	if host != "" && port != "" {
		return "https://" + net.JoinHostPort(host, port), nil
	}
	content, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inClusterURL, nil
	case err != nil:
		return "", fmt.Errorf("cannot read the API server's address; set kubernetes.kubeconfig: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// DefaultRetryTimeout is how long a request is repeated while the API server cannot be reached: long enough for a control plane
// to restart.
const DefaultRetryTimeout = 30 * time.Second

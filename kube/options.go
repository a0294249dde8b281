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

// Options say which API server to talk to, and as whom.
type Options struct {
	// Kubeconfig is the content of a kubeconfig file. Without it and KubeconfigPath, the service
	// account of the Pod that the CPI runs in is used.
	Kubeconfig string `json:"kubeconfig"`
	// KubeconfigPath is where a kubeconfig file lies.
	KubeconfigPath string `json:"kubeconfig_path"`
	// Context is the kubeconfig's context to use; its current one by default.
	Context string `json:"context"`
	// Namespace holds every object; the context's own by default.
	Namespace string `json:"namespace"`
}

// Validate checks what can be checked without a cluster.
func (o Options) Validate() error {
	switch {
	case o.Kubeconfig != "" && o.KubeconfigPath != "":
		return errors.New("kubernetes.kubeconfig and kubernetes.kubeconfig_path are both set: give one of them")
	case o.Context != "" && o.Kubeconfig == "" && o.KubeconfigPath == "":
		return errors.New("kubernetes.context is set without kubernetes.kubeconfig or kubernetes.kubeconfig_path")
	}
	return nil
}

// The files that the kubelet mounts into a Pod with a service account, see
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.
const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	inClusterURL      = "https://kubernetes.default.svc:443"
	// apiServerURLFile is where a machine keeps the API server's URL: kube/manifest/node/lib/api-server.sh.
	apiServerURLFile = "/etc/bosh-kubernetes-cpi/api-server"
)

// restConfig returns the connection's settings and the namespace to work in.
func (o Options) restConfig() (*rest.Config, string, error) {
	if o.Kubeconfig == "" && o.KubeconfigPath == "" {
		return inClusterConfig(o.Namespace)
	}
	var source clientcmd.ClientConfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	if o.Kubeconfig != "" {
		raw, err := clientcmd.Load([]byte(o.Kubeconfig))
		if err != nil {
			return nil, "", fmt.Errorf("kubernetes.kubeconfig is not a kubeconfig file's content: %w", err)
		}
		source = clientcmd.NewNonInteractiveClientConfig(*raw, o.Context, overrides, nil)
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.KubeconfigPath}
		source = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	}
	config, err := source.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf(
			"the kubeconfig cannot be used (check kubernetes.kubeconfig, kubernetes.kubeconfig_path and kubernetes.context): %w", err)
	}
	namespace := o.Namespace
	if namespace == "" {
		if namespace, _, err = source.Namespace(); err != nil {
			return nil, "", fmt.Errorf("the kubeconfig's namespace cannot be read: %w", err)
		}
	}
	return config, namespace, nil
}

// inClusterConfig is rest.InClusterConfig without its dependence on KUBERNETES_SERVICE_HOST: the director starts a CPI with an
// emptied environment. The token is read at each start, and again while the process runs: the kubelet renews it.
func inClusterConfig(namespace string) (*rest.Config, string, error) {
	token := serviceAccountDir + "/token"
	if _, err := os.Stat(token); err != nil {
		return nil, "", fmt.Errorf("no kubeconfig is configured, and this is not a Pod with a service account: "+
			"set kubernetes.kubeconfig or kubernetes.kubeconfig_path (%w)", err)
	}
	server, err := apiServerURL(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), apiServerURLFile)
	if err != nil {
		return nil, "", err
	}
	if namespace == "" {
		own, err := os.ReadFile(serviceAccountDir + "/namespace")
		if err != nil {
			return nil, "", fmt.Errorf("set kubernetes.namespace: the service account's own cannot be read: %w", err)
		}
		namespace = string(own)
	}
	return &rest.Config{
		Host:            server,
		BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: serviceAccountDir + "/ca.crt"},
	}, namespace, nil
}

// apiServerURL is the API server's URL: as the kubelet tells it to a container, as the machine has kept that at its boot,
// or by its name, for which the cluster's name servers have to be asked.
func apiServerURL(host, port, file string) (string, error) {
	if host != "" && port != "" {
		return "https://" + net.JoinHostPort(host, port), nil
	}
	content, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inClusterURL, nil
	case err != nil:
		return "", fmt.Errorf("where the API server is cannot be read, set kubernetes.kubeconfig: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// DefaultRetryTimeout is how long a request is repeated while the API server cannot be reached: long
// enough for a control plane that restarts.
const DefaultRetryTimeout = 30 * time.Second

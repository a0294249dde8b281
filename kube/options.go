package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options select an API server, a namespace, and how to authenticate.
type Options struct {
	// Kubeconfig is the content of a kubeconfig file. If neither Kubeconfig nor KubeconfigPath is set, the program uses the
	// service account of its Pod.
	Kubeconfig string `json:"kubeconfig"`
	// KubeconfigPath is the path of a kubeconfig file.
	KubeconfigPath string `json:"kubeconfig_path"`
	// Context is a context of the kubeconfig. The default is the current context.
	Context string `json:"context"`
	// Namespace is the namespace of all namespaced objects. The default is the namespace of the context or service account.
	Namespace string `json:"namespace"`
	// OnWarning receives the API server's warnings, for example about a deprecated field. If it is nil, client-go prints them to stderr.
	OnWarning func(text string) `json:"-"`
}

// warnings adapts a function to rest.WarningHandler.
type warnings func(text string)

// HandleWarningHeader implements rest.WarningHandler. Kubernetes sends warnings with code 299.
func (w warnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 && text != "" {
		w(text)
	}
}

// Validate checks the combination of the options. It reads no files and sends no requests.
func (o Options) Validate() error {
	switch {
	case isContent(o.KubeconfigPath):
		return errors.New("kubernetes.kubeconfig_path is not a path; set kubernetes.kubeconfig to the content of the file")
	case o.Kubeconfig != "" && o.KubeconfigPath != "":
		return errors.New("kubernetes.kubeconfig and kubernetes.kubeconfig_path are mutually exclusive; remove one")
	case o.Namespace != "" && len(validation.IsDNS1123Label(o.Namespace)) > 0:
		return fmt.Errorf("kubernetes.namespace %q is not valid; use at most 63 lowercase letters, digits and '-'", o.Namespace)
	case o.Context != "" && o.Kubeconfig == "" && o.KubeconfigPath == "":
		return errors.New("kubernetes.context requires kubernetes.kubeconfig or kubernetes.kubeconfig_path")
	}
	return nil
}

// checkProxy rejects a proxy in the environment that net/http would ignore, or of which it would use only a part, for connections to the
// server.
func checkProxy(config *rest.Config) error {
	server, err := url.Parse(config.Host)
	if err != nil || config.Proxy != nil {
		return nil //nolint:nilerr // the URL is checked elsewhere
	}
	environment := httpproxy.FromEnvironment()
	name, value := "HTTPS_PROXY", environment.HTTPSProxy
	if server.Scheme == "http" {
		name, value = "HTTP_PROXY", environment.HTTPProxy
	}
	if value == "" {
		return nil
	}
	const valid = "http://proxy"
	used, err := (&httpproxy.Config{HTTPProxy: valid, HTTPSProxy: valid, NoProxy: environment.NoProxy}).ProxyFunc()(server)
	if used == nil || err != nil {
		return err
	}
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	proxy, err := url.Parse(value)
	if err != nil || !isOnlyHost(proxy) {
		return fmt.Errorf("the environment variable %s is not the URL of a proxy; use a scheme, a host and a port, and percent-encode special "+
			"characters of the user name and the password", name)
	}
	return nil
}

// How a Pod reaches the API server; see https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.
const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	inClusterURL      = "https://kubernetes.default.svc:443"
)

// restConfig returns the connection settings and the namespace.
func (o Options) restConfig(component string) (*rest.Config, string, error) {
	if o.Kubeconfig == "" && o.KubeconfigPath == "" {
		return inClusterConfig(component, o.Namespace)
	}
	raw, err := o.loadKubeconfig()
	if err == nil {
		if err = CheckContext(raw, o.Context); err != nil {
			err = fmt.Errorf("%s: %w", o.kubeconfigName(), err)
		}
	}
	if err != nil {
		return nil, "", err
	}
	source := clientcmd.NewNonInteractiveClientConfig(*raw, o.Context, &clientcmd.ConfigOverrides{CurrentContext: o.Context}, nil)
	config, err := source.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", o.kubeconfigName(), WithoutValues(err))
	}
	namespace := o.Namespace
	if namespace == "" {
		if namespace, _, err = source.Namespace(); err != nil {
			return nil, "", fmt.Errorf("cannot read the namespace of the kubeconfig: %w", err)
		}
	}
	return config, namespace, nil
}

// loadKubeconfig parses the kubeconfig of the options.
func (o Options) loadKubeconfig() (*clientcmdapi.Config, error) {
	if o.Kubeconfig == "" {
		return LoadKubeconfig(o.KubeconfigPath)
	}
	config, err := parseKubeconfig([]byte(o.Kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.kubeconfigName(), err)
	}
	return config, nil
}

// kubeconfigName names the kubeconfig in messages.
func (o Options) kubeconfigName() string {
	switch {
	case o.Kubeconfig != "":
		return "kubernetes.kubeconfig"
	case o.KubeconfigPath != "":
		return "kubeconfig " + o.KubeconfigPath
	}
	return "the service account of the Pod"
}

// inClusterConfig is like rest.InClusterConfig, but also works in a process without the environment variables of its container:
// the file /etc/COMPONENT/api-server can contain the API server's URL. The client rereads the token file, because the kubelet
// renews the token.
func inClusterConfig(component, namespace string) (*rest.Config, string, error) {
	token := serviceAccountDir + "/token"
	if _, err := os.Stat(token); err != nil {
		return nil, "", fmt.Errorf("no kubeconfig is configured, and this is not a Pod with a service account: "+
			"%w; set kubernetes.kubeconfig or kubernetes.kubeconfig_path", err)
	}
	server, err := apiServerURL(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), "/etc/"+component+"/api-server")
	if err != nil {
		return nil, "", err
	}
	if namespace == "" {
		content, err := os.ReadFile(serviceAccountDir + "/namespace")
		if err != nil {
			return nil, "", fmt.Errorf("cannot read the service account's namespace: %w; set kubernetes.namespace", err)
		}
		namespace = string(content)
	}
	return &rest.Config{
		Host:            server,
		BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: serviceAccountDir + "/ca.crt"},
	}, namespace, nil
}

// apiServerURL returns the API server's URL, from the environment variables of the container or else from the file. Without them,
// it returns the URL with the DNS name, which requires the cluster's name servers.
func apiServerURL(host, port, file string) (string, error) {
	if host != "" && port != "" {
		return "https://" + net.JoinHostPort(host, port), nil
	}
	content, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inClusterURL, nil
	case err != nil:
		return "", fmt.Errorf("cannot read the API server's address: %w; set kubernetes.kubeconfig", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// DefaultRetryTimeout is how long requests are retried while the API server is unreachable. A control plane can restart within it.
const DefaultRetryTimeout = 30 * time.Second

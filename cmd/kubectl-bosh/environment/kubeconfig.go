package environment

import (
	"net/http"
	neturl "net/url"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes the one of this machine's CPI: the API server as the operator reaches it, and a token of the service
// account. The token is in a file of its own: create-env makes the machine anew when anything in the manifest has changed,
// and the kubeconfig's content is part of that.
func (f Folder) WriteKubeconfig(config *rest.Config, namespace, token string) error {
	server, err := serverOf(config)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(f.in(tokenFile))
	if err != nil {
		return err
	}
	if token != "" {
		if err := f.write(tokenFile, []byte(token)); err != nil {
			return err
		}
	}
	return f.kubeconfig(kubeconfigFile, server, namespace, api.AuthInfo{TokenFile: path})
}

// WriteDirectorsKubeconfig writes the director's: the API server as Pods reach it.
func (f Folder) WriteDirectorsKubeconfig(server string, authority []byte, namespace, token string) error {
	from := &api.Cluster{Server: server, CertificateAuthorityData: authority}
	return f.kubeconfig(directorsFile, from, namespace, api.AuthInfo{Token: token})
}

// prepareKubeconfigs writes kubeconfigs that have no token yet, where there are none.
func (f Folder) prepareKubeconfigs(p *Plan, config *rest.Config) error {
	if there, err := exists(f.in(kubeconfigFile)); err != nil || there {
		return err
	}
	if err := f.WriteKubeconfig(config, p.Namespace, ""); err != nil || p.Credentials != Kubeconfig {
		return err
	}
	server, err := serverOf(config)
	if err != nil {
		return err
	}
	return f.WriteDirectorsKubeconfig(p.found.API, server.CertificateAuthorityData, p.Namespace, "")
}

// serverOf is the API server as a kubeconfig names it.
func serverOf(config *rest.Config) (*api.Cluster, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	server := &api.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData,
		InsecureSkipTLSVerify: config.Insecure, TLSServerName: config.ServerName,
	}
	if config.Proxy == nil {
		return server, nil
	}
	target, err := neturl.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	proxy, err := config.Proxy(&http.Request{URL: target})
	if proxy != nil {
		server.ProxyURL = proxy.String()
	}
	return server, err
}

func (f Folder) kubeconfig(name string, server *api.Cluster, namespace string, as api.AuthInfo) error {
	const cluster = "kubernetes"
	content, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{cluster: server},
		AuthInfos:      map[string]*api.AuthInfo{Account: &as},
		Contexts:       map[string]*api.Context{Account: {Cluster: cluster, AuthInfo: Account, Namespace: namespace}},
		CurrentContext: Account,
	})
	if err != nil {
		return err
	}
	return f.write(name, content)
}

// Kubeconfig is the path of this machine's CPI's.
func (f Folder) Kubeconfig() string { return f.in(kubeconfigFile) }

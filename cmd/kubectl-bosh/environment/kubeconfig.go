package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	neturl "net/url"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is what the folder's kubeconfigs call the cluster.
const clusterName = "kubernetes"

// WriteKubeconfig writes the one of this machine's CPI: the API server as this machine reaches it, and a token of the service
// account. The token is in a file of its own: create-env recreates the VM when anything in the manifest has changed, and
// the kubeconfig's content is part of that.
func (f Folder) WriteKubeconfig(server *api.Cluster, namespace, token string) error {
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
	server, err := ServerOf(config)
	if err != nil {
		return err
	}
	if err := f.WriteKubeconfig(server, p.Namespace, ""); err != nil || p.Credentials != Kubeconfig {
		return err
	}
	return f.WriteDirectorsKubeconfig(p.found.API, server.CertificateAuthorityData, p.Namespace, "")
}

// RecordedServer is the API server of the kubeconfig of this machine's CPI; nil without one.
func (f Folder) RecordedServer() (*api.Cluster, error) {
	config, err := f.loadKubeconfig()
	if err != nil || config.Clusters[clusterName] == nil {
		return nil, err
	}
	server := config.Clusters[clusterName]
	server.LocationOfOrigin, server.Extensions = "", nil
	return server, nil
}

// formerly is the path that the token had when the kubeconfig was written, if it is another one now.
func (f Folder) formerly() (string, error) {
	config, err := f.loadKubeconfig()
	if err != nil || config.AuthInfos[Account] == nil {
		return "", err
	}
	path, err := filepath.Abs(f.in(tokenFile))
	if recorded := config.AuthInfos[Account].TokenFile; err == nil && recorded != path {
		return recorded, nil
	}
	return "", err
}

// loadKubeconfig returns an empty one where there is none yet.
func (f Folder) loadKubeconfig() (*api.Config, error) {
	config, err := clientcmd.LoadFromFile(f.in(kubeconfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return api.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.in(kubeconfigFile), err)
	}
	return config, nil
}

// ServerOf is the API server as a kubeconfig names it.
func ServerOf(config *rest.Config) (*api.Cluster, error) {
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

// NewKubeconfig is one with a single context.
func NewKubeconfig(server *api.Cluster, namespace string, as api.AuthInfo) api.Config {
	return api.Config{
		Clusters:       map[string]*api.Cluster{clusterName: server},
		AuthInfos:      map[string]*api.AuthInfo{Account: &as},
		Contexts:       map[string]*api.Context{Account: {Cluster: clusterName, AuthInfo: Account, Namespace: namespace}},
		CurrentContext: Account,
	}
}

func (f Folder) kubeconfig(name string, server *api.Cluster, namespace string, as api.AuthInfo) error {
	content, err := clientcmd.Write(NewKubeconfig(server, namespace, as))
	if err != nil {
		return err
	}
	return f.write(name, content)
}

// Kubeconfig is the path of this machine's CPI's.
func (f Folder) Kubeconfig() string { return f.in(kubeconfigFile) }

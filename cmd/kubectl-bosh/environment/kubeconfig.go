package environment

import (
	"errors"
	"io/fs"
	"net/http"
	neturl "net/url"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"bosh-kubernetes-cpi/kube"
)

// clusterName is the name of the cluster in the written kubeconfigs.
const clusterName = "kubernetes"

// WriteKubeconfig writes the kubeconfig of the CPI that create-env runs, with the URL at which this host reaches the API server,
// and the token. The token is in a separate file: the manifest contains the kubeconfig, and create-env recreates the VM if the manifest
// changes.
func (d Dir) WriteKubeconfig(server *api.Cluster, namespace, token string) error {
	path, err := filepath.Abs(d.filePath(tokenFile))
	if err != nil {
		return err
	}
	if token != "" {
		if err := d.write(tokenFile, []byte(token)); err != nil {
			return err
		}
	}
	return d.writeKubeconfigFile(kubeconfigFile, server, namespace, api.AuthInfo{TokenFile: path})
}

// WriteDirectorKubeconfig writes the kubeconfig of the director, with the URL at which Pods reach the API server.
func (d Dir) WriteDirectorKubeconfig(server string, caData []byte, namespace, token string) error {
	apiServer := &api.Cluster{Server: server, CertificateAuthorityData: caData}
	return d.writeKubeconfigFile(directorKubeconfigFile, apiServer, namespace, api.AuthInfo{Token: token})
}

// prepareKubeconfigs writes kubeconfigs without tokens, unless they exist.
func (d Dir) prepareKubeconfigs(p *Plan, config *rest.Config) error {
	if recorded, err := d.RecordedServer(); err != nil || recorded != nil {
		return err
	}
	server, err := ServerFromConfig(config)
	if err != nil {
		return err
	}
	if err := d.WriteKubeconfig(server, p.Namespace, ""); err != nil || p.Credentials != CredentialsKubeconfig {
		return err
	}
	return d.WriteDirectorKubeconfig(p.inspection.APIURL, server.CertificateAuthorityData, p.Namespace, "")
}

// RecordedServer returns the API server in the kubeconfig of the CPI that create-env runs, or nil if there is no kubeconfig yet.
func (d Dir) RecordedServer() (*api.Cluster, error) {
	config, err := d.loadKubeconfig()
	if err != nil || config.Clusters[clusterName] == nil {
		return nil, err
	}
	server := config.Clusters[clusterName]
	server.LocationOfOrigin, server.Extensions = "", nil
	return server, nil
}

// previousTokenPath returns the path of the token in the kubeconfig if the directory was moved since, or "" if it was not.
func (d Dir) previousTokenPath() (string, error) {
	config, err := d.loadKubeconfig()
	if err != nil || config.AuthInfos[Account] == nil {
		return "", err
	}
	path, err := filepath.Abs(d.filePath(tokenFile))
	if recorded := config.AuthInfos[Account].TokenFile; err == nil && recorded != path {
		return recorded, nil
	}
	return "", err
}

// loadKubeconfig loads the kubeconfig of the CPI that create-env runs, or returns an empty one if there is none yet.
func (d Dir) loadKubeconfig() (*api.Config, error) {
	config, err := kube.LoadKubeconfig(d.filePath(kubeconfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return api.NewConfig(), nil
	}
	return config, err
}

// ServerFromConfig returns the API server of the connection settings, as in a kubeconfig.
func ServerFromConfig(config *rest.Config) (*api.Cluster, error) {
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

// NewKubeconfig returns a kubeconfig with a single context.
func NewKubeconfig(server *api.Cluster, namespace string, user api.AuthInfo) api.Config {
	return api.Config{
		Clusters:       map[string]*api.Cluster{clusterName: server},
		AuthInfos:      map[string]*api.AuthInfo{Account: &user},
		Contexts:       map[string]*api.Context{Account: {Cluster: clusterName, AuthInfo: Account, Namespace: namespace}},
		CurrentContext: Account,
	}
}

func (d Dir) writeKubeconfigFile(name string, server *api.Cluster, namespace string, user api.AuthInfo) error {
	content, err := clientcmd.Write(NewKubeconfig(server, namespace, user))
	if err != nil {
		return err
	}
	return d.write(name, content)
}

// KubeconfigPath returns the path of the kubeconfig of the CPI that create-env runs.
func (d Dir) KubeconfigPath() string { return d.filePath(kubeconfigFile) }

package kube

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/document"
)

// A kubeconfig contains secrets. The errors of libraries quote parts of it: whole lists of users, proxies with their passwords. The
// functions of this file therefore check a kubeconfig before libraries use it, and their errors contain keys, names, indexes and lines, but
// no other value.

// LoadKubeconfig reads and parses a kubeconfig file. Relative paths in it become absolute.
func LoadKubeconfig(path string) (*clientcmdapi.Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	config, err := parseKubeconfig(content)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = path
	}
	for _, context := range config.Contexts {
		context.LocationOfOrigin = path
	}
	return config, clientcmd.ResolveLocalPaths(config)
}

// parseKubeconfig parses the content of a kubeconfig. Each call of a CPI does so: the complete check, which costs more than parsing,
// follows only if client-go rejects the content, or might accept a value that it should not.
func parseKubeconfig(content []byte) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(content)
	if err == nil && !isDoubtful(config) {
		return config, nil
	}
	if problem := checkKubeconfig(content); problem != nil {
		return nil, problem
	}
	if err != nil {
		return nil, errors.New("is not a valid kubeconfig; compare it with the output of `kubectl config view`")
	}
	return config, nil
}

// isDoubtful reports whether the kubeconfig may have a null in a list, which client-go decodes as an empty value, or the content of a file
// in a key for its path.
func isDoubtful(config *clientcmdapi.Config) bool {
	for name, cluster := range config.Clusters {
		if name == "" || isContent(cluster.CertificateAuthority) || cluster.Extensions[""] != nil {
			return true
		}
	}
	for name, user := range config.AuthInfos {
		if name == "" || isContent(user.ClientCertificate) || isContent(user.ClientKey) || isContent(user.TokenFile) ||
			slices.Contains(user.ImpersonateGroups, "") || user.Extensions[""] != nil {
			return true
		}
		for _, values := range user.ImpersonateUserExtra {
			if slices.Contains(values, "") {
				return true
			}
		}
		isUnnamed := func(variable clientcmdapi.ExecEnvVar) bool { return variable.Name == "" }
		if user.Exec != nil && (slices.Contains(user.Exec.Args, "") || slices.ContainsFunc(user.Exec.Env, isUnnamed)) {
			return true
		}
	}
	return config.Contexts[""] != nil || config.Extensions[""] != nil
}

// checkKubeconfig returns the first problem of a kubeconfig.
func checkKubeconfig(content []byte) error {
	raw, err := yaml.YAMLToJSON(content)
	if err != nil {
		return yamlProblem(err)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return errors.New(describeText(text))
	}
	var parsed clientcmdv1.Config
	if err := document.DecodeKnown("", raw, &parsed); err != nil {
		return err
	}
	if err := checkNames(parsed); err != nil {
		return err
	}
	return checkPaths(parsed)
}

// yamlProblem returns the line of a YAML error, without its text, which may quote the document.
func yamlProblem(err error) error {
	if line := regexp.MustCompile(`line \d+`).FindString(err.Error()); line != "" {
		return errors.New("is not valid YAML: see " + line)
	}
	return errors.New("is not valid YAML")
}

// describeText says what a text is that was configured instead of a kubeconfig.
func describeText(text string) string {
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	switch {
	case strings.HasPrefix(text, "(("):
		return "is a variable without a value, not a kubeconfig; set the variable"
	case err == nil && bytes.Contains(decoded, []byte("clusters")):
		return "is base64, not a kubeconfig; decode it"
	case strings.ContainsRune(text, '/') && !strings.ContainsAny(text, " \n"):
		return "is a path, not a kubeconfig; set kubernetes.kubeconfig_path to the path, or kubernetes.kubeconfig to the content of the file"
	}
	return "is a text, not a kubeconfig"
}

// checkNames rejects a name that two clusters, users or contexts have.
func checkNames(config clientcmdv1.Config) error {
	seen := map[string]bool{}
	check := func(list, name string) error {
		if seen[list+"/"+name] {
			return fmt.Errorf("%s: the name %q occurs twice; rename or remove one", list, name)
		}
		seen[list+"/"+name] = true
		return nil
	}
	for _, cluster := range config.Clusters {
		if err := check("clusters", cluster.Name); err != nil {
			return err
		}
	}
	for _, user := range config.AuthInfos {
		if err := check("users", user.Name); err != nil {
			return err
		}
	}
	for _, context := range config.Contexts {
		if err := check("contexts", context.Name); err != nil {
			return err
		}
	}
	return nil
}

// checkPaths rejects a key for the path of a file that has the content of a file: errors and the check of a cpi-config show paths.
func checkPaths(config clientcmdv1.Config) error {
	for i, cluster := range config.Clusters {
		if isContent(cluster.Cluster.CertificateAuthority) {
			return fmt.Errorf("clusters[%d].cluster.certificate-authority is not a path; use certificate-authority-data", i)
		}
	}
	for i, user := range config.AuthInfos {
		for _, key := range []struct{ name, value, instead string }{
			{"client-certificate", user.AuthInfo.ClientCertificate, "client-certificate-data"},
			{"client-key", user.AuthInfo.ClientKey, "client-key-data"}, {"tokenFile", user.AuthInfo.TokenFile, "token"},
		} {
			if isContent(key.value) {
				return fmt.Errorf("users[%d].user.%s is not a path; use %s", i, key.name, key.instead)
			}
		}
	}
	return nil
}

// isContent reports whether the value of a key for a path is the content of a file: several lines, PEM, base64 of PEM, or a JSON Web Token.
func isContent(value string) bool {
	return strings.ContainsRune(value, '\n') || strings.HasPrefix(value, "-----BEGIN") || strings.HasPrefix(value, "LS0t") ||
		strings.HasPrefix(value, "eyJ")
}

// CheckContext returns an error if the context, by default the current one, is incomplete, or if its cluster or user has a value that a
// connection cannot use.
func CheckContext(config *clientcmdapi.Config, name string) error {
	name = cmp.Or(name, config.CurrentContext)
	if name == "" {
		return errors.New("current-context is missing, and kubernetes.context is not set")
	}
	context := config.Contexts[name]
	if context == nil {
		return missingName("contexts", name, slices.Sorted(maps.Keys(config.Contexts)))
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil {
		return missingName("clusters", context.Cluster, slices.Sorted(maps.Keys(config.Clusters)))
	}
	if problem := clusterProblem(cluster); problem != "" {
		return fmt.Errorf("clusters[%q].cluster.%s", context.Cluster, problem)
	}
	user := config.AuthInfos[context.AuthInfo]
	switch {
	case context.AuthInfo == "": // for example behind a proxy that authenticates
		return nil
	case user == nil:
		return missingName("users", context.AuthInfo, slices.Sorted(maps.Keys(config.AuthInfos)))
	}
	if problem := userProblem(user); problem != "" {
		return fmt.Errorf("users[%q].user.%s", context.AuthInfo, problem)
	}
	return nil
}

// explainConnection returns why client-go rejects connection settings, without their values.
func explainConnection(config *rest.Config, err error) error {
	if config.CAFile != "" && len(config.CAData) == 0 {
		content, readErr := os.ReadFile(config.CAFile)
		if readErr == nil && !x509.NewCertPool().AppendCertsFromPEM(content) {
			return fmt.Errorf("certificate-authority %s has no certificates in PEM format", config.CAFile)
		}
	}
	return WithoutValues(err)
}

// checkClientCertificate rejects files that are not a certificate and its key, of which client-go reports no error.
func checkClientCertificate(config *rest.Config) error {
	if config.CertFile == "" || config.KeyFile == "" || len(config.CertData) > 0 || len(config.KeyData) > 0 {
		return nil
	}
	_, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if _, isPath := errors.AsType[*fs.PathError](err); err != nil && !isPath {
		return fmt.Errorf("client-certificate %s and client-key %s are not a certificate and its key in PEM format",
			config.CertFile, config.KeyFile)
	}
	return err
}

// WithoutValues returns an error of client-go for a checked kubeconfig if its text has only names and paths, else another one.
func WithoutValues(err error) error {
	if _, isPath := errors.AsType[*fs.PathError](err); isPath || clientcmd.IsConfigurationInvalid(err) || clientcmd.IsContextNotFound(err) {
		return err
	}
	return errors.New("the context cannot be used; check its cluster and its user")
}

func missingName(list, name string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("%s has no entry %q; it is empty", list, name)
	}
	return fmt.Errorf("%s has no entry %q, only %s", list, name, strings.Join(known, ", "))
}

// rawHint is the remedy for the output of `kubectl config view` without --raw.
const rawHint = "is not the value, but a placeholder; export the kubeconfig with `kubectl config view --raw`"

// isPlaceholder reports whether kubectl printed these words instead of a value. Both are valid base64.
func isPlaceholder(data []byte) bool {
	return slices.Contains([]string{"DATA+OMITTED", "REDACTED"}, base64.StdEncoding.EncodeToString(data))
}

func clusterProblem(cluster *clientcmdapi.Cluster) string {
	server, err := url.Parse(cluster.Server)
	switch {
	case cluster.Server == "":
		return "server is missing; set it to the URL of the API server"
	case err != nil && strings.Contains(cluster.Server, "://"):
		return "server is not a valid URL"
	case err != nil || server.Scheme != "https" && server.Scheme != "http" || server.Host == "":
		return "server must be a URL with https://, for example https://10.0.0.1:6443"
	case isPlaceholder(cluster.CertificateAuthorityData):
		return "certificate-authority-data " + rawHint
	case len(cluster.CertificateAuthorityData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData):
		return "certificate-authority-data is not the base64 of certificates in PEM format"
	case cluster.InsecureSkipTLSVerify && (len(cluster.CertificateAuthorityData) > 0 || cluster.CertificateAuthority != ""):
		return "insecure-skip-tls-verify and a certificate authority are mutually exclusive; remove one"
	}
	if cluster.ProxyURL == "" {
		return ""
	}
	proxy, err := url.Parse(cluster.ProxyURL)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) || !isOnlyHost(proxy) {
		return "proxy-url must be a URL with http://, https:// or socks5://, a host and a port; " +
			"percent-encode special characters of the user name and the password"
	}
	return ""
}

// isOnlyHost reports whether the URL has a host, and nothing after the port.
func isOnlyHost(u *url.URL) bool {
	return u.Host != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
}

func userProblem(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.AuthProvider != nil:
		return fmt.Sprintf("auth-provider %s is no longer supported by Kubernetes; use the credential plugin (exec) of your cluster, "+
			"or the token of a service account", user.AuthProvider.Name)
	case isPlaceholder(user.ClientCertificateData):
		return "client-certificate-data " + rawHint
	case isPlaceholder(user.ClientKeyData):
		return "client-key-data " + rawHint
	case user.Token == "REDACTED":
		return "token " + rawHint
	case user.Token != strings.TrimSpace(user.Token) || !httpguts.ValidHeaderFieldValue(user.Token):
		return "token has white space or a control character; remove it, for example a newline at the end"
	case len(user.ClientCertificateData) > 0 && len(user.ClientKeyData) > 0:
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			return "client-certificate-data and client-key-data are not a certificate and its key in PEM format, encoded as base64"
		}
	case user.Exec != nil && user.Exec.Command == "":
		return "exec.command is missing"
	case user.Exec != nil && !slices.Contains(execVersions, user.Exec.APIVersion):
		return fmt.Sprintf("exec.apiVersion %q is not supported; use a plugin with %s", user.Exec.APIVersion, strings.Join(execVersions, " or "))
	}
	return ""
}

// execVersions are the versions of credential plugins that client-go supports.
var execVersions = []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}

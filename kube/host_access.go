package kube

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// HostAccess is what Options use of the host that the CPI runs on.
type HostAccess struct {
	Commands []HostResource // run to get credentials
	Files    []HostResource // read; their content may be sent to a server
}

// HostResource is a program or file, and the option that names it.
type HostResource struct{ Field, Name string }

// HostAccess returns the programs that the options run, and the files that they read, apart from a Pod's service account. It
// fails if Kubeconfig is not the content of a kubeconfig file.
func (o Options) HostAccess() (HostAccess, error) {
	var access HostAccess
	if o.KubeconfigPath != "" {
		access.Files = append(access.Files, HostResource{"kubernetes.kubeconfig_path", o.KubeconfigPath})
	}
	if o.Kubeconfig == "" {
		return access, nil
	}
	config, err := clientcmd.Load([]byte(o.Kubeconfig))
	if err != nil {
		return access, fmt.Errorf("kubernetes.kubeconfig is not a valid kubeconfig: %w", err)
	}
	for name, user := range config.AuthInfos {
		access.addUser("kubernetes.kubeconfig's users["+name+"].user.", user)
	}
	for name, cluster := range config.Clusters {
		field := "kubernetes.kubeconfig's clusters[" + name + "].cluster."
		access.Files = append(access.Files, HostResource{field + "certificate-authority", cluster.CertificateAuthority})
	}
	access.Commands, access.Files = sortNonEmpty(access.Commands), sortNonEmpty(access.Files)
	return access, nil
}

func (r *HostAccess) addUser(field string, user *clientcmdapi.AuthInfo) {
	r.Files = append(r.Files, HostResource{field + "tokenFile", user.TokenFile},
		HostResource{field + "client-certificate", user.ClientCertificate}, HostResource{field + "client-key", user.ClientKey})
	if user.Exec != nil {
		r.Commands = append(r.Commands, HostResource{field + "exec", user.Exec.Command})
	}
	if user.AuthProvider != nil {
		r.Commands = append(r.Commands, HostResource{field + "auth-provider", "auth-provider " + user.AuthProvider.Name})
	}
}

// sortNonEmpty returns the resources that have a name, sorted by field.
func sortNonEmpty(resources []HostResource) []HostResource {
	slices.SortFunc(resources, func(a, b HostResource) int { return cmp.Compare(a.Field, b.Field) })
	return slices.DeleteFunc(resources, func(resource HostResource) bool { return resource.Name == "" })
}

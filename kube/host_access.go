package kube

import (
	"cmp"
	"slices"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// HostAccess lists the programs and files of the local host that Options refer to.
type HostAccess struct {
	Commands []HostResource // programs that are run to get credentials
	Files    []HostResource // files with content that may be sent to a server
}

// HostResource is a program or file, and the option that refers to it.
type HostResource struct{ Field, Name string }

// HostAccess returns the programs and files that the options refer to, except those of a Pod's service account. It fails if
// Kubeconfig is not a valid kubeconfig.
func (o Options) HostAccess() (HostAccess, error) {
	var access HostAccess
	if o.KubeconfigPath != "" {
		access.Files = append(access.Files, HostResource{"kubernetes.kubeconfig_path", o.KubeconfigPath})
	}
	if o.Kubeconfig == "" {
		return access, nil
	}
	config, err := o.loadKubeconfig()
	if err != nil {
		return access, err
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

func (a *HostAccess) addUser(field string, user *clientcmdapi.AuthInfo) {
	a.Files = append(a.Files, HostResource{field + "tokenFile", user.TokenFile},
		HostResource{field + "client-certificate", user.ClientCertificate}, HostResource{field + "client-key", user.ClientKey})
	if user.Exec != nil {
		a.Commands = append(a.Commands, HostResource{field + "exec", user.Exec.Command})
	}
}

// sortNonEmpty returns the resources with a name, sorted by field.
func sortNonEmpty(resources []HostResource) []HostResource {
	slices.SortFunc(resources, func(a, b HostResource) int { return cmp.Compare(a.Field, b.Field) })
	return slices.DeleteFunc(resources, func(resource HostResource) bool { return resource.Name == "" })
}

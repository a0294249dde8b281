package kube

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Reach is what options make of the machine that they are used on.
type Reach struct {
	Commands []Use // that are run to get credentials
	Files    []Use // that are read, and whose content may be sent to a server
}

// Use is one program or file, and the field of the options that names it.
type Use struct{ Field, Name string }

// Reach returns what the options run and read on this machine, beside the service account of a Pod.
func (o Options) Reach() (Reach, error) {
	var reach Reach
	if o.KubeconfigPath != "" {
		reach.Files = append(reach.Files, Use{"kubernetes.kubeconfig_path", o.KubeconfigPath})
	}
	if o.Kubeconfig == "" {
		return reach, nil
	}
	config, err := clientcmd.Load([]byte(o.Kubeconfig))
	if err != nil {
		return reach, fmt.Errorf("kubernetes.kubeconfig is not a kubeconfig file's content: %w", err)
	}
	for name, user := range config.AuthInfos {
		reach.addUser("kubernetes.kubeconfig's users["+name+"].user.", user)
	}
	for name, cluster := range config.Clusters {
		field := "kubernetes.kubeconfig's clusters[" + name + "].cluster."
		reach.Files = append(reach.Files, Use{field + "certificate-authority", cluster.CertificateAuthority})
	}
	reach.Commands, reach.Files = given(reach.Commands), given(reach.Files)
	return reach, nil
}

func (r *Reach) addUser(field string, user *clientcmdapi.AuthInfo) {
	r.Files = append(r.Files, Use{field + "tokenFile", user.TokenFile},
		Use{field + "client-certificate", user.ClientCertificate}, Use{field + "client-key", user.ClientKey})
	if user.Exec != nil {
		r.Commands = append(r.Commands, Use{field + "exec", user.Exec.Command})
	}
	if user.AuthProvider != nil {
		r.Commands = append(r.Commands, Use{field + "auth-provider", "auth-provider " + user.AuthProvider.Name})
	}
}

// given are the uses that name something, in an order that stays the same.
func given(uses []Use) []Use {
	slices.SortFunc(uses, func(a, b Use) int { return cmp.Compare(a.Field, b.Field) })
	return slices.DeleteFunc(uses, func(use Use) bool { return use.Name == "" })
}

package kube

import (
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// Reach is what a kubeconfig makes of the machine that it is used on.
type Reach struct {
	Commands []string // that it runs to get credentials
	Files    []string // that it reads, and whose content it may send to a server
}

// Reach returns what the options run and read on this machine, beside the service account of a Pod.
func (o Options) Reach() (Reach, error) {
	var reach Reach
	if o.KubeconfigPath != "" {
		reach.Files = append(reach.Files, o.KubeconfigPath)
	}
	if o.Kubeconfig == "" {
		return reach, nil
	}
	config, err := clientcmd.Load([]byte(o.Kubeconfig))
	if err != nil {
		return reach, fmt.Errorf("kubernetes.kubeconfig is not a kubeconfig file's content: %w", err)
	}
	for _, user := range config.AuthInfos {
		reach.Files = append(reach.Files, user.TokenFile, user.ClientCertificate, user.ClientKey)
		if user.Exec != nil {
			reach.Commands = append(reach.Commands, user.Exec.Command)
		}
		if user.AuthProvider != nil {
			reach.Commands = append(reach.Commands, "auth-provider "+user.AuthProvider.Name)
		}
	}
	for _, cluster := range config.Clusters {
		reach.Files = append(reach.Files, cluster.CertificateAuthority)
	}
	reach.Commands, reach.Files = sorted(reach.Commands), sorted(reach.Files)
	return reach, nil
}

// sorted are the names without the empty one, each once.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

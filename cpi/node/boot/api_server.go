//go:build linux

package boot

import (
	"context"
	"net"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// saveAPIServerURL writes the URL of the API server to a file for kube/options.go, in a VM with a service account token. A director starts
// the CPI without the Pod's environment variables, and the VM's name servers may not know the cluster's names. The file is in /etc, which
// BPM mounts into its containers.
func (v *vm) saveAPIServerURL(context.Context) error {
	const directory = "/etc/bosh-kubernetes-cpi"
	host, port := v.variable("KUBERNETES_SERVICE_HOST"), v.variable("KUBERNETES_SERVICE_PORT")
	token, err := files.Find(v.sys, "/var/run/secrets/kubernetes.io/serviceaccount/token")
	if err != nil {
		return err
	}
	if token == nil || host == "" || port == "" {
		return v.sys.RemoveAll(directory)
	}
	return files.Update(v.sys, directory+"/api-server", []byte("https://"+net.JoinHostPort(host, port)+"\n"), 0o644)
}

// variable returns the value of an environment variable of the container, or "".
func (v *vm) variable(name string) string {
	for _, variable := range v.environment {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

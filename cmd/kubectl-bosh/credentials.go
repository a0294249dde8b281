package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// serverReplacement determines whether the API server in the user's kubeconfig replaces the recorded one.
type serverReplacement int

const (
	replaceNever serverReplacement = iota
	replaceUnusable
	replaceAlways
)

// writeCredentials writes the kubeconfig of the local CPI, which create-env and delete-env run on this host, with a new token.
func (r *environmentRun) writeCredentials(ctx context.Context) error {
	token, expires, err := r.cluster.RequestToken(ctx, environment.Account, tokenLifetime)
	if err != nil {
		return err
	}
	server, err := r.chooseServer(ctx, token)
	if err != nil {
		return err
	}
	if err := r.dir.WriteKubeconfig(server, r.settings.Namespace, token); err != nil {
		return err
	}
	r.report(r.dir.KubeconfigPath(), "new token of ServiceAccount "+environment.Account+", expires "+expires.Local().Format(time.DateTime))
	return nil
}

// writeDirectorCredentials writes the director's kubeconfig, if the director uses one. apiURL is the URL at which Pods reach the API
// server.
func (r *environmentRun) writeDirectorCredentials(ctx context.Context, apiURL string) error {
	if r.settings.Credentials != environment.CredentialsKubeconfig {
		return nil
	}
	if apiURL == "" {
		return errors.New("cannot write the director's kubeconfig: the in-cluster address of the API server is unknown")
	}
	token, caData, err := r.cluster.WaitForSecretToken(ctx, environment.TokenSecret)
	if err != nil {
		return err
	}
	return r.dir.WriteDirectorKubeconfig(apiURL, caData, r.settings.Namespace, token)
}

// chooseServer returns the API server for the local CPI. It prefers the recorded server, because a different URL, even of the same
// server, changes the manifest and makes create-env recreate the director's VM.
func (r *environmentRun) chooseServer(ctx context.Context, token string) (*api.Cluster, error) {
	current, err := environment.ServerFromConfig(r.config)
	if err != nil {
		return nil, err
	}
	recorded, err := r.dir.RecordedServer()
	if err != nil {
		return nil, err
	}
	director, err := r.dir.DirectorUUID()
	if err != nil {
		return nil, err
	}
	if director == "" || recorded == nil || r.replaceServer == replaceAlways || equality.Semantic.DeepEqual(recorded, current) {
		return current, nil
	}
	verifyErr := r.verifyServer(ctx, recorded, token)
	switch {
	case verifyErr == nil:
		r.report(r.dir.KubeconfigPath(), "kept the recorded API server "+recorded.Server+", which is still reachable")
		return recorded, nil
	case r.replaceServer == replaceUnusable:
		return current, nil
	}
	// The error is not wrapped: this is not the server that the context selects.
	return nil, fmt.Errorf("cannot use API server %s, recorded in %s: %s; to use %s from your kubeconfig instead, rerun with "+
		"--replace-server (create-env then recreates the director's VM)",
		recorded.Server, r.dir.KubeconfigPath(), verifyErr.Error(), current.Server)
}

// verifyServer fails if the server is unreachable or rejects the token. A server of another cluster rejects the token.
func (r *environmentRun) verifyServer(ctx context.Context, server *api.Cluster, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*retryTimeout)
	defer cancel()
	content, err := clientcmd.Write(environment.NewKubeconfig(server, r.settings.Namespace, api.AuthInfo{Token: token}))
	if err != nil {
		return err
	}
	client, err := kube.New(kube.Options{Kubeconfig: string(content)}, manifest.ManagedBy, retryTimeout)
	if err != nil {
		return err
	}
	_, err = client.Reviewer().IsAllowed(ctx, kube.Permission{Resource: "pods", Verb: "list"})
	return err
}

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
	"bosh-kubernetes-cpi/kube"
)

// serverReplacement is when the API server of the operator's kubeconfig replaces the recorded one.
type serverReplacement int

const (
	replaceNever serverReplacement = iota
	replaceUnusable
	replaceAlways
)

// writeCredentials writes the kubeconfig of create-env's CPI, with a new token, and the kubeconfig of the director if it has one.
// apiURL is the URL of the API server for Pods.
func (s *session) writeCredentials(ctx context.Context, apiURL string) error {
	token, expires, err := s.cluster.RequestToken(ctx, environment.Account, tokenLifetime)
	if err != nil {
		return err
	}
	server, err := s.chooseServer(ctx, token)
	if err != nil {
		return err
	}
	if err := s.folder.WriteKubeconfig(server, s.settings.Namespace, token); err != nil {
		return err
	}
	s.report(s.folder.KubeconfigPath(), "new token of ServiceAccount "+environment.Account+", expires "+expires.Local().Format(time.DateTime))
	if s.settings.Credentials != environment.CredentialsKubeconfig {
		return nil
	}
	if apiURL == "" {
		return errors.New("cannot write the director's kubeconfig: the in-cluster address of the API server is unknown")
	}
	token, authority, err := s.cluster.WaitForSecretToken(ctx, environment.TokenSecret)
	if err != nil {
		return err
	}
	return s.folder.WriteDirectorKubeconfig(apiURL, authority, s.settings.Namespace, token)
}

// chooseServer returns the API server for create-env's CPI: the one that is recorded in the folder, if it works. Another name of the
// same server changes the manifest, and so makes create-env recreate the director's VM.
func (s *session) chooseServer(ctx context.Context, token string) (*api.Cluster, error) {
	current, err := environment.ServerFromConfig(s.config)
	if err != nil {
		return nil, err
	}
	recorded, err := s.folder.RecordedServer()
	if err != nil {
		return nil, err
	}
	director, err := s.folder.DirectorUUID()
	if err != nil {
		return nil, err
	}
	if director == "" || recorded == nil || s.replaceServer == replaceAlways || equality.Semantic.DeepEqual(recorded, current) {
		return current, nil
	}
	verifyErr := s.verifyServer(ctx, recorded, token)
	switch {
	case verifyErr == nil:
		s.report(s.folder.KubeconfigPath(), "keeps the recorded API server "+recorded.Server+", which also works from here")
		return recorded, nil
	case s.replaceServer == replaceUnusable:
		return current, nil
	}
	return nil, fmt.Errorf("the API server %s, recorded in %s, does not work from here: %w; --replace-server replaces it with that "+
		"of your kubeconfig, %s, and create-env recreates the director's VM",
		recorded.Server, s.folder.KubeconfigPath(), verifyErr, current.Server)
}

// verifyServer fails if the server cannot be reached, or does not accept the token and so does not belong to the cluster.
func (s *session) verifyServer(ctx context.Context, server *api.Cluster, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*retryTimeout)
	defer cancel()
	content, err := clientcmd.Write(environment.NewKubeconfig(server, s.settings.Namespace, api.AuthInfo{Token: token}))
	if err != nil {
		return err
	}
	client, err := kube.New(kube.Options{Kubeconfig: string(content)}, retryTimeout)
	if err != nil {
		return err
	}
	reviewer, err := client.Reviewer()
	if err != nil {
		return err
	}
	_, err = reviewer.IsAllowed(ctx, kube.Right{Resource: "pods", Verb: "list"})
	return err
}

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

// replacement is when the recorded API server gives way to that of the operator's kubeconfig.
type replacement int

const (
	never replacement = iota
	unlessItWorks
	always
)

// writeCredentials writes the kubeconfig of this machine's CPI, with a new token, and the director's where it has one; api is
// the API server's URL as Pods reach it.
func (s *session) writeCredentials(ctx context.Context, api string) error {
	token, ends, err := s.cluster.Token(ctx, environment.Account, tokenLife)
	if err != nil {
		return err
	}
	server, err := s.server(ctx, token)
	if err != nil {
		return err
	}
	if err := s.folder.WriteKubeconfig(server, s.settings.Namespace, token); err != nil {
		return err
	}
	s.say(s.folder.Kubeconfig(), "a new token of "+environment.Account+", until "+ends.Local().Format(time.DateTime))
	if s.settings.Credentials != environment.Kubeconfig {
		return nil
	}
	if api == "" {
		return errors.New("where Pods reach the API server was not found: the director's kubeconfig cannot be written")
	}
	token, authority, err := s.cluster.SecretToken(ctx, environment.TokenSecret)
	if err != nil {
		return err
	}
	return s.folder.WriteDirectorsKubeconfig(api, authority, s.settings.Namespace, token)
}

// server is the API server by which this machine's CPI works: the one that the folder has recorded, while it works. Another name of the
// same server is another manifest to create-env, which recreates the director's VM then.
func (s *session) server(ctx context.Context, token string) (*api.Cluster, error) {
	own, err := environment.ServerOf(s.config)
	if err != nil {
		return nil, err
	}
	recorded, err := s.folder.RecordedServer()
	if err != nil {
		return nil, err
	}
	director, err := s.folder.Director()
	if err != nil {
		return nil, err
	}
	if director == "" || recorded == nil || s.replaceServer == always || equality.Semantic.DeepEqual(recorded, own) {
		return own, nil
	}
	why := s.accepts(ctx, recorded, token)
	switch {
	case why == nil:
		s.say(s.folder.Kubeconfig(), "keeps the API server "+recorded.Server+", which works from here, too")
		return recorded, nil
	case s.replaceServer == unlessItWorks:
		return own, nil
	}
	return nil, fmt.Errorf("the API server %s, which %s names, does not work from here: %w; with --replace-server that of your kubeconfig, "+
		"%s, takes its place, and create-env recreates the director's VM", recorded.Server, s.folder.Kubeconfig(), why, own.Server)
}

// accepts reports why the server does not accept a token of the cluster; nil if it does, and so belongs to the cluster.
func (s *session) accepts(ctx context.Context, server *api.Cluster, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	content, err := clientcmd.Write(environment.NewKubeconfig(server, s.settings.Namespace, api.AuthInfo{Token: token}))
	if err != nil {
		return err
	}
	client, err := kube.New(kube.Options{Kubeconfig: string(content)}, patience)
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

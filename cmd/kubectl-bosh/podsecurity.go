package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// allowPrivileged has the namespace allow VM Pods. What it allowed before is recorded first, for `down`.
func (s *session) allowPrivileged(ctx context.Context, former string) error {
	before := s.settings.FormerPodSecurity
	s.settings.FormerPodSecurity = &former
	if err := s.folder.WriteSettings(s.settings); err != nil {
		return err
	}
	had, err := s.cluster.SetPodSecurity(ctx, former, cluster.Privileged)
	if cluster.IsForbidden(err) {
		s.settings.FormerPodSecurity = before
		return errors.Join(fmt.Errorf("%w; an administrator can run: %s", err, labelCommand(s.settings.Namespace, cluster.Privileged)),
			s.folder.WriteSettings(s.settings))
	}
	if err != nil {
		return err
	}
	if had != former {
		return fmt.Errorf("the label %s of Namespace %s has changed to %q since the plan was made: run this again",
			cluster.PodSecurity, s.settings.Namespace, had)
	}
	s.relabeled = true
	s.say("Namespace "+s.settings.Namespace, cluster.PodSecurity+"="+cluster.Privileged+" in place of "+orNone(former))
	return nil
}

// restorePodSecurity has the namespace allow again what it allowed before `up` changed that, unless somebody else has changed it since.
func (s *session) restorePodSecurity(ctx context.Context, others []string) error {
	former := s.settings.FormerPodSecurity
	if former == nil {
		return nil
	}
	title := "Namespace " + s.settings.Namespace
	if len(others) > 0 {
		s.say(title, "keeps "+cluster.PodSecurity+"="+cluster.Privileged+" for what is left in it; `kubectl bosh down` without --force "+
			"restores "+orNone(*former)+" once that is gone")
		return nil
	}
	had, err := s.cluster.SetPodSecurity(ctx, cluster.Privileged, *former)
	switch {
	case cluster.IsForbidden(err):
		s.say(title, "keeps "+cluster.PodSecurity+"="+cluster.Privileged+", which you may not change; an administrator can run: "+
			labelCommand(s.settings.Namespace, *former))
		return nil
	case cluster.IsNotFound(err):
	case err != nil:
		return err
	case had == cluster.Privileged:
		s.say(title, cluster.PodSecurity+" is "+orNone(*former)+" again")
	default:
		s.say(title, cluster.PodSecurity+" stays "+orNone(had)+": it was changed after `up`")
	}
	s.settings.FormerPodSecurity = nil
	return s.folder.WriteSettings(s.settings)
}

// labelCommand is the command that gives the namespace this level; "" removes the label.
func labelCommand(namespace, level string) string {
	label := cluster.PodSecurity + "=" + level
	if level == "" {
		label = cluster.PodSecurity + "-"
	}
	return "kubectl label --overwrite namespace " + namespace + " " + label
}

func orNone(label string) string { return cmp.Or(label, "(no label)") }

// awaitPodSecurity waits until the API server admits VM Pods to a namespace whose label has changed: that takes it a moment. What else it
// has against them, the checks tell.
func awaitPodSecurity(ctx context.Context, client *kube.Client) error {
	pod := manifest.VM{Name: "agent-probe", Namespace: client.Namespace, Image: "probe"}.Pod()
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.Pods.DryRunCreate(ctx, pod)
		return err == nil || !strings.Contains(err.Error(), "violates PodSecurity"), nil
	})
	if wait.Interrupted(err) {
		return ctx.Err()
	}
	return err
}

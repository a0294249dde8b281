package preflight

import (
	"context"
	"errors"
	"strings"

	"bosh-kubernetes-cpi/kube"
)

// rights are those of one file, or of a part of it, and what to do about one that is missing.
type rights struct {
	rules  []rule
	advice string
}

// rule is a rule of a Role, or of a ClusterRole.
type rule struct {
	group         string
	resource      string
	verbs         string // separated by blanks, as the file has them
	clusterScoped bool
}

const changeVerbs = "get list watch create patch delete"

// A test compares these with the files.
var (
	callRights = rights{[]rule{
		{"", "pods", changeVerbs, false},
		{"", "podtemplates", changeVerbs, false},
		{"", "pods/ephemeralcontainers", "patch", false},
		{"", "secrets", "get create patch delete", false},
		{"", "persistentvolumeclaims", changeVerbs, false},
		{"", "services", changeVerbs, false},
		{"policy", "poddisruptionbudgets", changeVerbs, false},
		{"", "events", "list watch", false},
		{"storage.k8s.io", "storageclasses", "get", true},
		{"storage.k8s.io", "csinodes", "get", true},
		{"", "persistentvolumes", "get", true},
		{"", "nodes", "list watch", true},
	}, applyCommand(callRightsFile)}

	snapshotRights = rights{[]rule{
		{"snapshot.storage.k8s.io", "volumesnapshots", changeVerbs, false},
	}, "apply " + callRightsFile + " as it is; or leave snapshots out, and have the director take none (enable_snapshots)"}

	eventRights = rights{[]rule{
		{"", "events", "create", false},
	}, "apply " + callRightsFile + " as it is; or have calls leave no Events (events.enabled: false)"}

	prefetchRights = rights{[]rule{
		{"apps", "daemonsets", "get list create delete", false},
	}, "kubectl apply --namespace NAMESPACE -f " + prefetchRightsFile + "; or disable stemcell.prefetch"}

	networkRights = rights{[]rule{
		{"crd.projectcalico.org", "ippools", "get list create delete", true},
		{"crd.projectcalico.org", "ipreservations", "get create delete", true},
	}, "only for networks with `managed: true`, on clusters with Calico: " + applyCommand(networkRightsFile)}
)

// applyCommand is the command that applies a file with rights for namespace bosh to NAMESPACE: names of cluster-wide objects end in it,
// so that no director takes the rights of another one's.
func applyCommand(file string) string {
	return `sed -E 's/([- ])bosh$/\1NAMESPACE/' ` + file + " | kubectl apply --namespace NAMESPACE -f -"
}

func (r rights) expand() (all []kube.Right) {
	for _, rule := range r.rules {
		for verb := range strings.FieldsSeq(rule.verbs) {
			all = append(all, kube.Right{Group: rule.group, Resource: rule.resource, Verb: verb, ClusterScoped: rule.clusterScoped})
		}
	}
	return all
}

// inspectRights asks the API server for each of the rights.
func inspectRights(needed rights) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		reviewer, err := s.client.Reviewer()
		if err != nil {
			return errorFinding(err, callRightsFile)
		}
		all := needed.expand()
		allowed, failures := make([]bool, len(all)), make([]error, len(all))
		forEachParallel(len(all), func(i int) { allowed[i], failures[i] = reviewer.IsAllowed(ctx, all[i]) })
		if err := errors.Join(failures...); err != nil {
			return errorFinding(failures[firstErrorIndex(failures)], callRightsFile)
		}
		missing := describeMissing(all, allowed)
		if missing == "" {
			return pass("all that " + needed.resources() + " need")
		}
		return fail("missing: "+missing, strings.ReplaceAll(needed.advice, "NAMESPACE", s.client.Namespace))
	}
}

// inspectEventRights asks for the right to leave Events, where calls are to leave them.
func inspectEventRights(ctx context.Context, s *clusterState) finding {
	if !s.config.Events.Enabled {
		return pass("calls leave none (events.enabled: false)")
	}
	return inspectRights(eventRights)(ctx, s)
}

// inspectPrefetchRights asks for the right to have nodes pull stemcells' images, where create_stemcell is to.
func inspectPrefetchRights(ctx context.Context, s *clusterState) finding {
	if !s.config.Stemcell.Prefetch.Enabled {
		return pass("nodes pull images when they need them (stemcell.prefetch.enabled: false)")
	}
	return inspectRights(prefetchRights)(ctx, s)
}

func firstErrorIndex(failures []error) int {
	for i, err := range failures {
		if err != nil {
			return i
		}
	}
	return 0
}

// describeMissing lists, by resource, what is not given.
func describeMissing(all []kube.Right, allowed []bool) string {
	var parts []string
	last := ""
	for i, right := range all {
		switch {
		case allowed[i]:
		case right.Resource == last:
			parts[len(parts)-1] += ", " + right.Verb
		default:
			parts = append(parts, right.Resource+" ("+right.Verb)
			last = right.Resource
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "), ") + ")"
}

func (r rights) resources() string {
	names := make([]string, 0, len(r.rules))
	for _, rule := range r.rules {
		names = append(names, rule.resource)
	}
	return strings.Join(names, ", ")
}

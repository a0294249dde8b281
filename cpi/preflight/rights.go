package preflight

import (
	"context"
	"errors"
	"strings"

	"bosh-kubernetes-cpi/kube"
)

// rights are the rules of a file with rights, or of a part of it, and the advice if one is missing.
type rights struct {
	rules  []rule
	advice string
}

// rule is a rule of a Role, or of a ClusterRole.
type rule struct {
	group         string
	resource      string
	verbs         string // separated by spaces, in the order of the file
	clusterScoped bool
}

const changeVerbs = "get list watch create patch delete"

// A test compares these rights with the files.
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
	}, "apply the complete " + callRightsFile + ", or disable snapshots in the director (enable_snapshots)"}

	eventRights = rights{[]rule{
		{"", "events", "create", false},
	}, "apply the complete " + callRightsFile + ", or disable Events (events.enabled: false)"}

	prefetchRights = rights{[]rule{
		{"apps", "daemonsets", "get list create delete", false},
	}, "kubectl apply --namespace NAMESPACE -f " + prefetchRightsFile + ", or disable stemcell.prefetch"}

	networkRights = rights{[]rule{
		{"crd.projectcalico.org", "ippools", "get list create delete", true},
		{"crd.projectcalico.org", "ipreservations", "get create delete", true},
	}, "only for networks with `managed: true`, on clusters with Calico: " + applyCommand(networkRightsFile)}
)

// applyCommand returns the command that applies a file with rights for namespace bosh to NAMESPACE. It also changes the names of
// cluster-scoped objects, which end in the namespace, so that the rights of directors in other namespaces stay.
func applyCommand(file string) string {
	return `sed -E 's/([- ])bosh$/\1NAMESPACE/' ` + file + " | kubectl apply --namespace NAMESPACE -f -"
}

// expand returns one right for each verb.
func (r rights) expand() (expanded []kube.Right) {
	for _, rule := range r.rules {
		for verb := range strings.FieldsSeq(rule.verbs) {
			expanded = append(expanded, kube.Right{Group: rule.group, Resource: rule.resource, Verb: verb, ClusterScoped: rule.clusterScoped})
		}
	}
	return expanded
}

// inspectRights checks each of the rights with an access review.
func inspectRights(needed rights) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		reviewer, err := s.client.Reviewer()
		if err != nil {
			return errorFinding(err, callRightsFile)
		}
		required := needed.expand()
		allowed, failures := make([]bool, len(required)), make([]error, len(required))
		forEachParallel(len(required), func(i int) { allowed[i], failures[i] = reviewer.IsAllowed(ctx, required[i]) })
		if err := errors.Join(failures...); err != nil {
			return errorFinding(failures[firstErrorIndex(failures)], callRightsFile)
		}
		missing := describeMissing(required, allowed)
		if missing == "" {
			return pass("all rights for " + needed.resources())
		}
		return fail("missing: "+missing, strings.ReplaceAll(needed.advice, "NAMESPACE", s.client.Namespace))
	}
}

// inspectEventRights checks the right to create Events, if calls create them.
func inspectEventRights(ctx context.Context, s *clusterState) finding {
	if !s.config.Events.Enabled {
		return pass("calls create no Events (events.enabled: false)")
	}
	return inspectRights(eventRights)(ctx, s)
}

// inspectPrefetchRights checks the rights for prefetch DaemonSets, if stemcell.prefetch is enabled.
func inspectPrefetchRights(ctx context.Context, s *clusterState) finding {
	if !s.config.Stemcell.Prefetch.Enabled {
		return pass("images are not prefetched (stemcell.prefetch.enabled: false)")
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

// describeMissing returns the missing rights by resource, or "" if all are granted.
func describeMissing(required []kube.Right, allowed []bool) string {
	var parts []string
	last := ""
	for i, right := range required {
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

// resources returns the names of the resources.
func (r rights) resources() string {
	names := make([]string, 0, len(r.rules))
	for _, rule := range r.rules {
		names = append(names, rule.resource)
	}
	return strings.Join(names, ", ")
}

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
	group    string
	resource string
	verbs    string // separated by blanks, as the file has them
	cluster  bool
}

const changes = "get list watch create patch delete"

// A test compares these with the files.
var (
	calls = rights{[]rule{
		{"", "pods", changes, false},
		{"", "podtemplates", changes, false},
		{"", "pods/ephemeralcontainers", "patch", false},
		{"", "secrets", "get create patch delete", false},
		{"", "persistentvolumeclaims", changes, false},
		{"", "services", changes, false},
		{"policy", "poddisruptionbudgets", changes, false},
		{"", "events", "list watch", false},
		{"storage.k8s.io", "storageclasses", "get", true},
		{"storage.k8s.io", "csinodes", "get", true},
		{"", "persistentvolumes", "get", true},
		{"", "nodes", "list watch", true},
	}, inNamespace(rightsOfCalls)}

	snapshots = rights{[]rule{
		{"snapshot.storage.k8s.io", "volumesnapshots", changes, false},
	}, "apply " + rightsOfCalls + " as it is; or leave snapshots out, and have the director take none (enable_snapshots)"}

	events = rights{[]rule{
		{"", "events", "create", false},
	}, "apply " + rightsOfCalls + " as it is; or have calls leave no Events (events.enabled: false)"}

	prefetch = rights{[]rule{
		{"apps", "daemonsets", "get list create delete", false},
	}, "kubectl apply --namespace NAMESPACE -f " + rightsOfPrefetch + "; or disable stemcell.prefetch"}

	networks = rights{[]rule{
		{"crd.projectcalico.org", "ippools", "get list create delete", true},
		{"crd.projectcalico.org", "ipreservations", "get create delete", true},
	}, "only for networks with `managed: true`, on clusters with Calico: " + inNamespace(rightsOfNetworks)}
)

// inNamespace is the command that applies a file with rights for namespace bosh to NAMESPACE: names of cluster-wide objects end in it,
// so that no director takes the rights of another one's.
func inNamespace(file string) string {
	return `sed -E 's/([- ])bosh$/\1NAMESPACE/' ` + file + " | kubectl apply --namespace NAMESPACE -f -"
}

func (r rights) all() (all []kube.Right) {
	for _, rule := range r.rules {
		for verb := range strings.FieldsSeq(rule.verbs) {
			all = append(all, kube.Right{Group: rule.group, Resource: rule.resource, Verb: verb, Cluster: rule.cluster})
		}
	}
	return all
}

// lookAtRights asks the API server for each of the rights.
func lookAtRights(wanted rights) func(context.Context, *subject) finding {
	return func(ctx context.Context, s *subject) finding {
		reviewer, err := s.client.Reviewer()
		if err != nil {
			return failed(err, rightsOfCalls)
		}
		all := wanted.all()
		may, failures := make([]bool, len(all)), make([]error, len(all))
		each(len(all), func(i int) { may[i], failures[i] = reviewer.May(ctx, all[i]) })
		if err := errors.Join(failures...); err != nil {
			return failed(failures[firstOf(failures)], rightsOfCalls)
		}
		missing := missing(all, may)
		if missing == "" {
			return ok("all that " + wanted.resources() + " need")
		}
		return fails("missing: "+missing, strings.ReplaceAll(wanted.advice, "NAMESPACE", s.client.Namespace))
	}
}

// lookAtEvents asks for the right to leave Events, where calls are to leave them.
func lookAtEvents(ctx context.Context, s *subject) finding {
	if !s.config.Events.Enabled {
		return ok("calls leave none (events.enabled: false)")
	}
	return lookAtRights(events)(ctx, s)
}

// lookAtPrefetch asks for the right to have nodes pull stemcells' images, where create_stemcell is to.
func lookAtPrefetch(ctx context.Context, s *subject) finding {
	if !s.config.Stemcell.Prefetch.Enabled {
		return ok("nodes pull images when they need them (stemcell.prefetch.enabled: false)")
	}
	return lookAtRights(prefetch)(ctx, s)
}

func firstOf(failures []error) int {
	for i, err := range failures {
		if err != nil {
			return i
		}
	}
	return 0
}

// missing lists, by resource, what is not given.
func missing(all []kube.Right, may []bool) string {
	var said []string
	last := ""
	for i, right := range all {
		switch {
		case may[i]:
		case right.Resource == last:
			said[len(said)-1] += ", " + right.Verb
		default:
			said = append(said, right.Resource+" ("+right.Verb)
			last = right.Resource
		}
	}
	if len(said) == 0 {
		return ""
	}
	return strings.Join(said, "), ") + ")"
}

func (r rights) resources() string {
	names := make([]string, 0, len(r.rules))
	for _, rule := range r.rules {
		names = append(names, rule.resource)
	}
	return strings.Join(names, ", ")
}

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/kube"
)

// permissions are the rules of a file with permissions, or of a part of it, and the remedy if one is missing.
type permissions struct {
	rules  []rule
	remedy string
}

// rule is a rule of a Role, or of a ClusterRole.
type rule struct {
	group         string
	resource      string
	verbs         string // separated by spaces, in the order of the file
	clusterScoped bool
}

const changeVerbs = "get list watch create patch delete"

// A test compares these permissions with the files.
var (
	callPermissions = permissions{[]rule{
		{"", "pods", changeVerbs, false},
		{"", "podtemplates", changeVerbs, false},
		{"", "pods/ephemeralcontainers", "patch", false},
		{"", "secrets", "get create patch delete", false},
		{"", "persistentvolumeclaims", changeVerbs, false},
		{"", "services", changeVerbs, false},
		{"policy", "poddisruptionbudgets", changeVerbs, false},
		{"", "events", "list watch", false},
		{"storage.k8s.io", "storageclasses", "get", true},
		{"storage.k8s.io", "volumeattributesclasses", "get", true},
		{"storage.k8s.io", "csinodes", "get", true},
		{"", "persistentvolumes", "get", true},
		{"", "nodes", "list watch", true},
	}, grantCommand}

	snapshotPermissions = permissions{[]rule{
		{"snapshot.storage.k8s.io", "volumesnapshots", changeVerbs, false},
	}, "apply the complete " + callPermissionsFile + ", or disable snapshots in the director (enable_snapshots)"}

	eventPermissions = permissions{[]rule{
		{"", "events", "create", false},
	}, "apply the complete " + callPermissionsFile + ", or disable Events (kubernetes.events.enabled: false)"}
)

// grantCommand is the command with which an administrator grants the permissions for calls in NAMESPACE.
const grantCommand = "kubectl bosh up --print-permissions --namespace NAMESPACE | kubectl apply -f -"

// expand returns one permission for each verb.
func (r permissions) expand() (expanded []kube.Permission) {
	for _, rule := range r.rules {
		for verb := range strings.FieldsSeq(rule.verbs) {
			expanded = append(expanded, kube.Permission{Group: rule.group, Resource: rule.resource, Verb: verb, ClusterScoped: rule.clusterScoped})
		}
	}
	return expanded
}

// inspectPermissions checks each of the permissions with an access review.
func inspectPermissions(needed permissions) func(context.Context, *clusterState) finding {
	return func(ctx context.Context, s *clusterState) finding {
		required := needed.expand()
		allowed, failures := make([]bool, len(required)), make([]error, len(required))
		reviewer := s.client.Reviewer()
		forEachParallel(len(required), func(i int) { allowed[i], failures[i] = reviewer.IsAllowed(ctx, required[i]) })
		if i := slices.IndexFunc(failures, func(err error) bool { return err != nil }); i >= 0 {
			return errorFinding(failures[i], callPermissionsFile)
		}
		missing := describeMissing(required, allowed)
		if missing == "" {
			return pass("all permissions for " + needed.resources())
		}
		detail, remedy := "missing: "+missing, strings.ReplaceAll(needed.remedy, "NAMESPACE", s.client.Namespace)
		if user, err := s.client.CurrentUser(ctx); err == nil {
			detail += ", for user " + user
			if account := "system:serviceaccount:" + s.client.Namespace + ":bosh-cpi"; user != account {
				remedy += "; the file grants them to " + account + ", not to this user: to check that account, use kubectl bosh check --as " + account
			}
		}
		return fail(detail, remedy)
	}
}

// inspectEventPermissions checks permission to create Events, if calls create them.
func inspectEventPermissions(ctx context.Context, s *clusterState) finding {
	if !s.config.Events.Enabled {
		return pass("calls create no Events (kubernetes.events.enabled: false)")
	}
	return inspectPermissions(eventPermissions)(ctx, s)
}

// describeMissing returns the missing permissions by resource, or "" if all are granted.
func describeMissing(required []kube.Permission, allowed []bool) string {
	var resources, missing []string
	verbs := map[string][]string{}
	for i, permission := range required {
		if allowed[i] {
			continue
		}
		if verbs[permission.Resource] == nil {
			resources = append(resources, permission.Resource)
		}
		verbs[permission.Resource] = append(verbs[permission.Resource], permission.Verb)
	}
	for _, resource := range resources {
		missing = append(missing, fmt.Sprintf("%s (%s)", resource, strings.Join(verbs[resource], ", ")))
	}
	return strings.Join(missing, ", ")
}

// resources returns the names of the resources.
func (r permissions) resources() string {
	names := make([]string, 0, len(r.rules))
	for _, rule := range r.rules {
		names = append(names, rule.resource)
	}
	return strings.Join(names, ", ")
}

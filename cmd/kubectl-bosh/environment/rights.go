package environment

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/docs"
)

// Account is the service account of docs/rbac.yaml, and TokenSecret the Secret with a token of it that does not end.
const (
	Account     = cluster.Account
	TokenSecret = cluster.TokenSecret
)

const separator = "---\n"

// rights are the objects of docs/rbac.yaml for the plan's namespace, with the namespace itself, and with a Secret for the
// director's token where it is to have one. The namespace comes without the label for Pod Security: applying the file does not
// change what Pods an existing namespace allows.
func (p *Plan) rights() string {
	return fmt.Sprintf("# What the director's CPI may do: docs/rbac.yaml, for namespace %[1]s.\n"+
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %[1]s\n", p.Namespace) + separator + ofCPI(p.Namespace, p.Credentials)
}

// ofCPI are the rights of the CPI in a namespace.
func ofCPI(namespace, credentials string) string {
	objects := inNamespace(docs.Rights, namespace)
	if credentials == Kubeconfig {
		objects += separator + inNamespace(tokenSecret, namespace)
	}
	return objects
}

const tokenSecret = `# The director's token, which does not end: --credentials kubeconfig.
apiVersion: v1
kind: Secret
metadata:
  name: ` + TokenSecret + `
  annotations:
    kubernetes.io/service-account.name: ` + Account + `
type: kubernetes.io/service-account-token
`

// RightsOfOperator are what an administrator applies for a user who is to run `up` and `down` in the namespace, and who may do
// nothing else: the namespace, the rights of the CPI and those of the user, with the reasons as comments.
func RightsOfOperator(user, namespace, credentials string) string {
	operator := inNamespace(docs.RightsOfUp, namespace)
	// Each user has bindings of his own: another one's subjects stay.
	operator = binding.ReplaceAllStringFunc(operator, func(text string) string {
		kind, name, _ := strings.Cut(text, "  name: ")
		return kind + "  name: " + inQuotes(name+"-"+nameReplacer.Replace(user))
	})
	operator = group.ReplaceAllLiteralString(operator, "kind: User\n  name: "+inQuotes(user))
	return fmt.Sprintf(rightsHead, user, namespace) + separator + ofCPI(namespace, credentials) + separator + operator
}

var (
	binding = regexp.MustCompile(`(?m)^kind: (?:Cluster)?RoleBinding\nmetadata:\n {2}name: \S+$`)
	group   = regexp.MustCompile(`kind: Group\n {2}name: \S+`)
	// nameReplacer replaces what no object's name may hold.
	nameReplacer = strings.NewReplacer("/", "-", "%", "-")
)

// inQuotes is the text as YAML takes it: as JSON has it.
func inQuotes(text string) string {
	quoted, _ := json.Marshal(text) // of a string, it does not fail
	return string(quoted)
}

const rightsHead = `# What the user %[1]q needs to run "kubectl bosh up" and "down" in namespace %[2]s. An administrator applies it:
#
#   kubectl apply -f FILE
#
# Cluster-wide are: the namespace; the ClusterRole bosh-cpi-%[2]s, by which the CPI reads nodes, volumes and storage classes; the
# ClusterRole bosh-up-%[2]s, by which the user reads what the cluster is like; and the bindings of both. All else is in the namespace.
#
# With a token of the CPI the user can do in the namespace whatever the CPI can: docs/trust.md says what that is, and how an
# admission policy limits it. Nothing here gives rights in another namespace, or the right to change rights.
---
# VM Pods are privileged: the label allows them in this namespace.
apiVersion: v1
kind: Namespace
metadata:
  name: %[2]s
  labels:
    ` + cluster.PodSecurity + ": " + cluster.Privileged + "\n"

var (
	// named are the places of docs/rbac*.yaml that hold the namespace: names that end in it, and its own.
	named = regexp.MustCompile(`(?m)([- ])bosh$`)
	// placed are the objects there that are in the namespace.
	placed = regexp.MustCompile(`(?m)^kind: (?:ServiceAccount|Secret|Role|RoleBinding)\nmetadata:\n {2}name: \S+\n`)
	// head are a file's comments before its first object.
	head = regexp.MustCompile(`^(?:#.*\n)+`)
)

// inNamespace are the objects of docs/rbac.yaml and its kind for another namespace than bosh.
func inNamespace(objects, namespace string) string {
	objects = named.ReplaceAllString(head.ReplaceAllString(objects, ""), "${1}"+namespace)
	return placed.ReplaceAllString(objects, "${0}  namespace: "+namespace+"\n")
}

// Objects are those of the folder's file with rights, as the operator may have changed it.
func (f Folder) Objects() ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(f.in(rightsFile))
	if err != nil {
		return nil, err
	}
	objects, err := split(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.in(rightsFile), err)
	}
	return objects, nil
}

func split(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(documents), "\n"+separator) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return nil, err
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

package environment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// Account is the service account in manifests/rbac.yaml. TokenSecret is the Secret with a token of the account that does not expire.
const (
	Account     = cluster.Account
	TokenSecret = cluster.TokenSecret
)

const separator = "---\n"

// renderPermissions returns the plan's namespace, the objects in manifests/rbac.yaml for it, and the Secret for the director's token if the
// director uses one. The namespace has no Pod Security label: applying the file must not change which Pods an existing namespace
// admits.
func (p *Plan) renderPermissions() string {
	head := fmt.Sprintf("# Permissions of the director's CPI: manifests/rbac.yaml for namespace %[1]s.\n"+
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %[2]s\n", p.Namespace, yamlScalar(p.Namespace))
	return head + separator + cpiPermissions(p.Namespace, p.Credentials)
}

// cpiPermissions returns the objects that grant the CPI its permissions in a namespace.
func cpiPermissions(namespace, credentials string) string {
	objects := withNamespace(manifests.Permissions, namespace)
	if credentials == CredentialsKubeconfig {
		objects += separator + withNamespace(tokenSecret, namespace)
	}
	return objects
}

const tokenSecret = `# The director's token, which does not expire (--credentials kubeconfig).
apiVersion: v1
kind: Secret
metadata:
  name: ` + TokenSecret + `
  annotations:
    kubernetes.io/service-account.name: ` + Account + `
type: kubernetes.io/service-account-token
`

// OperatorPermissions returns the objects that an administrator applies to let a user run `up` and `down` in the namespace, and nothing
// else: the namespace, the permissions of the CPI, and the permissions of the user, with comments.
func OperatorPermissions(user, namespace, credentials string) string {
	operator := withNamespace(manifests.PermissionsOfUp, namespace)
	// Bindings are separate for each user: applying the objects for another user must not change their subjects.
	operator = bindingName.ReplaceAllStringFunc(operator, func(head string) string {
		kind, name, _ := strings.Cut(head, "  name: ")
		return kind + "  name: " + quoteYAML(name+"-"+nameReplacer.Replace(user))
	})
	operator = groupSubject.ReplaceAllLiteralString(operator, "kind: User\n  name: "+quoteYAML(user))
	head := fmt.Sprintf(permissionsHead, user, namespace, yamlScalar(namespace))
	return head + separator + cpiPermissions(namespace, credentials) + separator + operator
}

var (
	bindingName  = regexp.MustCompile(`(?m)^kind: (?:Cluster)?RoleBinding\nmetadata:\n {2}name: \S+$`)
	groupSubject = regexp.MustCompile(`kind: Group\n {2}name: \S+`)
	// nameReplacer replaces characters that are not valid in names of RBAC objects.
	nameReplacer = strings.NewReplacer("/", "-", "%", "-")
)

// yamlScalar returns the name for YAML, quoted if it would otherwise not be a string, such as 2024.
func yamlScalar(name string) string {
	var value any
	if yaml.Unmarshal([]byte(name), &value) == nil && value == any(name) {
		return name
	}
	return quoteYAML(name)
}

// quoteYAML quotes value for YAML, as a JSON string.
func quoteYAML(value string) string {
	quoted, _ := json.Marshal(value) // cannot fail for a string
	return string(quoted)
}

const permissionsHead = `# Permissions of user %[1]q for "kubectl bosh up" and "down" in namespace %[2]s. An administrator applies this
# file:
#
#   kubectl apply -f FILE
#
# Cluster-wide objects are: the namespace; ClusterRole bosh-cpi-%[2]s, with which the CPI reads nodes, volumes and storage classes;
# ClusterRole bosh-up-%[2]s, with which the user inspects the cluster; and the bindings of both. All others are in the namespace.
#
# The user can request a token of the CPI, which grants all permissions of the CPI in the namespace. docs/explanation/security.md
# describes them, and how an admission policy limits them. No object grants permissions in other namespaces, or permission to change
# permissions.
---
# VM Pods are privileged; this label admits them to the namespace.
apiVersion: v1
kind: Namespace
metadata:
  name: %[3]s
  labels:
    ` + cluster.PodSecurityLabel + ": " + cluster.PodSecurityPrivileged + "\n"

const namespacedKinds = "ServiceAccount|Secret|ConfigMap|Role|RoleBinding|ResourceQuota|NetworkPolicy"

var (
	// namespaceReference matches the namespace in manifests/rbac*.yaml, also at the end of another name.
	namespaceReference = regexp.MustCompile(`(?m)([- ])bosh$`)
	// namespacedObject matches objects of namespaced kinds.
	namespacedObject = regexp.MustCompile(`(?m)^kind: (?:` + namespacedKinds + `)\nmetadata:\n {2}name: \S+\n`)
	// headComment matches the comments before the first object of a file.
	headComment = regexp.MustCompile(`^(?:#.*\n)+`)
)

// withNamespace sets the namespace of objects, and replaces the namespace bosh in those of manifests/rbac*.yaml.
func withNamespace(objects, namespace string) string {
	objects = namespaceReference.ReplaceAllStringFunc(headComment.ReplaceAllString(objects, ""), func(reference string) string {
		if strings.HasPrefix(reference, " ") {
			return " " + yamlScalar(namespace)
		}
		return "-" + namespace
	})
	return namespacedObject.ReplaceAllString(objects, "${0}  namespace: "+yamlScalar(namespace)+"\n")
}

// PermissionsObjects returns the objects in permissions.yaml, which the operator may edit.
func (d Dir) PermissionsObjects() ([]*unstructured.Unstructured, error) {
	return d.readObjects(permissionsFile)
}

func (d Dir) readObjects(name string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(d.filePath(name))
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(content)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", d.filePath(name), err)
	}
	return objects, nil
}

func parseObjects(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		object := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.Unmarshal(document, &object.Object)); err != nil {
			return nil, err
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
}

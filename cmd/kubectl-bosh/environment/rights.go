package environment

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/docs"
)

// Account is the service account of docs/rbac.yaml, and TokenSecret the Secret with a token of it that does not end.
const (
	Account     = "bosh-cpi"
	TokenSecret = "bosh-cpi-token"
)

// rights are the objects of docs/rbac.yaml for the plan's namespace, with the namespace itself, and with a Secret for the
// director's token where it is to have one. What belongs to the cluster has the namespace in its name: another director's
// may be beside it.
func (p *Plan) rights() ([]byte, error) {
	objects := []*unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": p.Namespace, "labels": map[string]any{cluster.PodSecurity: cluster.Privileged}}}}}
	documents, err := split([]byte(docs.Rights))
	if err != nil {
		return nil, err
	}
	for _, object := range documents {
		if err := p.place(object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	if p.Credentials == Kubeconfig {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
			"metadata": map[string]any{"name": TokenSecret, "namespace": p.Namespace,
				"annotations": map[string]any{"kubernetes.io/service-account.name": Account}},
		}})
	}
	var whole bytes.Buffer
	fmt.Fprintf(&whole, "# What the director's CPI may do: docs/rbac.yaml, for namespace %s.\n", p.Namespace)
	for i, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			whole.WriteString("---\n")
		}
		whole.Write(content)
	}
	return whole.Bytes(), nil
}

// place puts an object of docs/rbac.yaml into the plan's namespace.
func (p *Plan) place(object *unstructured.Unstructured) error {
	if !strings.HasPrefix(object.GetKind(), "Cluster") {
		object.SetNamespace(p.Namespace)
	} else {
		object.SetName(Account + "-" + p.Namespace)
		if _, bound := object.Object["roleRef"]; bound {
			if err := unstructured.SetNestedField(object.Object, object.GetName(), "roleRef", "name"); err != nil {
				return err
			}
		}
	}
	subjects, bound, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil || !bound {
		return err
	}
	for _, each := range subjects {
		each.(map[string]any)["namespace"] = p.Namespace
	}
	return unstructured.SetNestedSlice(object.Object, subjects, "subjects")
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
	for document := range strings.SplitSeq(string(documents), "\n---\n") {
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

package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ListOf is a list of objects of a kind that Kubernetes' own modules have no type for.
type ListOf[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

// DeepCopyObject makes it a runtime.Object.
func (l *ListOf[T]) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]T, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *any(any(&l.Items[i]).(runtime.Object).DeepCopyObject()).(*T)
	}
	return &c
}

// extension reaches the objects of an API group that a cluster may not have: those of a namespace, or
// with none, those of the cluster.
func extension[T any, P interface {
	*T
	object
}](c *Client, namespace string, group schema.GroupVersion, kind, plural string) (*Resource[P, *ListOf[T]], error) {
	via, err := c.connect("/apis", group, func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(group.WithKind(kind), P(new(T)))
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), &ListOf[T]{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	via.namespace = namespace
	return resource(via, kind, plural, func() P { return new(T) }, newOf[ListOf[T]]), nil
}

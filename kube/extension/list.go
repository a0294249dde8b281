package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is a list of objects of one kind.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List[T]) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]T, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *any(any(&l.Items[i]).(runtime.Object).DeepCopyObject()).(*T)
	}
	return &c
}

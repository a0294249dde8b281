package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AppsGroup is the API group of DaemonSets. Importing k8s.io/api/apps/v1 would add 0.4 MB to the program.
var AppsGroup = schema.GroupVersion{Group: "apps", Version: "v1"}

// DaemonSet runs a Pod on each node.
type DaemonSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *DaemonSet) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

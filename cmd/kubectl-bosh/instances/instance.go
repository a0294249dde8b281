package instances

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Instance is a machine, as BOSH and Kubernetes know it. What BOSH has not said yet is "".
type Instance struct {
	Director     string      `json:"director,omitempty"` // its name
	DirectorUUID string      `json:"directorUUID,omitempty"`
	Deployment   string      `json:"deployment,omitempty"`
	Group        string      `json:"group,omitempty"`
	Index        string      `json:"index,omitempty"`
	ID           string      `json:"id,omitempty"`
	Pod          string      `json:"pod"` // the VM's CID
	Namespace    string      `json:"namespace"`
	State        string      `json:"state"`
	Ready        bool        `json:"ready"`
	Restarts     int32       `json:"restarts"`
	Node         string      `json:"node,omitempty"`
	Addresses    []string    `json:"addresses,omitempty"`
	Stemcell     string      `json:"stemcell,omitempty"`
	Created      metav1.Time `json:"created"`
	Disks        []Disk      `json:"disks,omitempty"`
	Services     []string    `json:"services,omitempty"`

	pod *corev1.Pod
}

// Disk is a persistent disk that a machine uses.
type Disk struct {
	CID   string `json:"cid"` // the claim's name
	Size  string `json:"size"`
	Class string `json:"class,omitempty"`
	// State is Attached; Attaching, while its attachment is not ready; Detaching, while it ends; or Unattached, of a disk that has
	// none.
	State string `json:"state"`
	// Attachment is the Pod that attaches it, and Node where that is.
	Attachment string `json:"attachment,omitempty"`
	Node       string `json:"node,omitempty"`
}

// Name is the instance's, as `bosh vms` has it, but with its index; the Pod's where BOSH has not named it.
func (i Instance) Name() string {
	switch {
	case i.Group == "":
		return i.Pod
	case i.Index != "":
		return i.Group + "/" + i.Index
	default:
		return i.Group + "/" + i.ID
	}
}

// is reports whether the instance is called so.
func (i Instance) is(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/")
	if name == i.Pod || i.ID != "" && name == i.ID {
		return true
	}
	group, which, ok := strings.Cut(name, "/")
	return ok && i.Group != "" && group == i.Group && which != "" && (which == i.Index || which == i.ID)
}

func newInstance(pod *corev1.Pod) Instance {
	said := metadata(pod)
	i := Instance{
		Director: said["director"], DirectorUUID: pod.Labels[manifest.LabelDirector], Deployment: said["deployment"],
		Group: said["job"], Index: said["index"], ID: said["id"],
		Pod: pod.Name, Namespace: pod.Namespace, State: state(pod), Ready: kube.Ready(pod), Node: pod.Spec.NodeName,
		Stemcell: pod.Annotations[manifest.AnnotationStemcell], Created: pod.CreationTimestamp, pod: pod,
	}
	if i.Group == "" {
		i.Group = said["instance_group"]
	}
	for _, ip := range pod.Status.PodIPs {
		i.Addresses = append(i.Addresses, ip.IP)
	}
	for _, status := range pod.Status.ContainerStatuses {
		i.Restarts += status.RestartCount
	}
	return i
}

// metadata is what the director has said of the VM, as texts.
func metadata(pod *corev1.Pod) map[string]string {
	var all map[string]any
	if json.Unmarshal([]byte(pod.Annotations[manifest.AnnotationMetadata]), &all) != nil {
		return nil
	}
	texts := map[string]string{}
	for key, value := range all {
		switch value := value.(type) {
		case string:
			texts[key] = value
		case float64:
			texts[key] = strconv.FormatFloat(value, 'f', -1, 64)
		}
	}
	return texts
}

// state is the Pod's in a word, as kubectl has it.
func state(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	if pod.Status.Reason != "" { // such as Evicted
		return pod.Status.Reason
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
			return status.State.Waiting.Reason
		}
	}
	if kube.UnschedulableReason(pod) != "" {
		return "Unschedulable"
	}
	if pod.Status.Phase == corev1.PodRunning && !kube.Ready(pod) {
		return "Booting"
	}
	return string(pod.Status.Phase)
}

package instances

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Instance is a BOSH instance and its VM. Fields that the director has not set yet are "".
type Instance struct {
	Director     string      `json:"director,omitempty"` // name
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

// Disk is a persistent disk of an instance.
type Disk struct {
	CID          string `json:"cid"` // name of the PVC
	Size         string `json:"size"`
	StorageClass string `json:"class,omitempty"`
	// State is Attached; Attaching until the attachment Pod is ready; Detaching while that Pod is being deleted; or Unattached
	// without an attachment Pod.
	State string `json:"state"`
	// Attachment is the name of the attachment Pod, and Node is its node.
	Attachment string `json:"attachment,omitempty"`
	Node       string `json:"node,omitempty"`
}

// Name returns GROUP/INDEX, or GROUP/ID as in `bosh vms`, or the name of the Pod if the director has not named the instance.
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

// matches reports whether this is a name of the instance; see Find.
func (i Instance) matches(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/")
	if name == i.Pod || i.ID != "" && name == i.ID {
		return true
	}
	group, indexOrID, ok := strings.Cut(name, "/")
	return ok && i.Group != "" && group == i.Group && indexOrID != "" && (indexOrID == i.Index || indexOrID == i.ID)
}

func newInstance(pod *corev1.Pod) Instance {
	meta := metadata(pod)
	i := Instance{
		Director: meta["director"], DirectorUUID: pod.Labels[manifest.LabelDirector], Deployment: meta["deployment"],
		Group: meta["job"], Index: meta["index"], ID: meta["id"],
		Pod: pod.Name, Namespace: pod.Namespace, State: state(pod), Ready: kube.Ready(pod), Node: pod.Spec.NodeName,
		Stemcell: pod.Annotations[manifest.AnnotationStemcell], Created: pod.CreationTimestamp, pod: pod,
	}
	if i.Group == "" {
		i.Group = meta["instance_group"]
	}
	for _, ip := range pod.Status.PodIPs {
		i.Addresses = append(i.Addresses, ip.IP)
	}
	for _, status := range pod.Status.ContainerStatuses {
		i.Restarts += status.RestartCount
	}
	return i
}

// metadata returns the metadata that the director has set for the VM, as strings.
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

// state returns the state of the Pod in a word, like the column STATUS of kubectl.
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

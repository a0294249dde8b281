package instances

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Instance is a BOSH instance and its VM. Fields that the director did not set yet are empty.
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

	vmPod manifest.VMPod
}

// Name returns GROUP/INDEX, or GROUP/ID as in `bosh vms`, or the name of the Pod if the director did not name the instance.
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

// matches reports whether name is a name of the instance; see Find.
func (i Instance) matches(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/")
	if name == i.Pod || i.ID != "" && name == i.ID {
		return true
	}
	group, indexOrID, ok := strings.Cut(name, "/")
	return ok && i.Group != "" && group == i.Group && indexOrID != "" && (indexOrID == i.Index || indexOrID == i.ID)
}

func newInstance(pod manifest.VMPod) Instance {
	meta := metadata(pod)
	i := Instance{
		Director: meta["director"], DirectorUUID: manifest.DirectorOf(pod), Deployment: meta["deployment"],
		Group: cmp.Or(meta["job"], meta["instance_group"]), Index: meta["index"], ID: meta["id"],
		Pod: pod.Name, Namespace: pod.Namespace, State: state(pod), Ready: kube.IsReady(pod.Pod), Node: pod.Spec.NodeName,
		Stemcell: manifest.StemcellOf(pod), Created: pod.CreationTimestamp, vmPod: pod,
	}
	for _, ip := range pod.Status.PodIPs {
		i.Addresses = append(i.Addresses, ip.IP)
	}
	for _, status := range pod.Status.ContainerStatuses {
		i.Restarts += status.RestartCount
	}
	return i
}

// metadata returns the VM's metadata set by the director, with values as strings.
func metadata(pod manifest.VMPod) map[string]string {
	var values map[string]any
	if json.Unmarshal([]byte(manifest.MetadataOf(pod)), &values) != nil {
		return nil
	}
	formatted := map[string]string{}
	for key, value := range values {
		switch value := value.(type) {
		case string:
			formatted[key] = value
		case float64:
			formatted[key] = strconv.FormatFloat(value, 'f', -1, 64)
		}
	}
	return formatted
}

// state returns the state of the Pod in one word, like the column STATUS of kubectl.
func state(pod manifest.VMPod) string {
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
	if kube.UnschedulableReason(pod.Pod) != "" {
		return "Unschedulable"
	}
	if pod.Status.Phase == corev1.PodRunning && !kube.IsReady(pod.Pod) {
		return "Booting"
	}
	return string(pod.Status.Phase)
}

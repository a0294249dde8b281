package memoryapi

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

var errPrecondition = errors.New("the object has been modified")

// Add stores an object, for example a StorageClass. It keeps a UID and a creation time that are set. It panics if the name exists.
func (s *Server) Add(resource, namespace string, typed runtime.Object) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, err := s.add(resource, namespace, ToObject(typed)); err != nil {
		panic(err)
	}
}

// Update changes an object as another client would. It panics if the object does not exist.
func Update[T runtime.Object](s *Server, resource, namespace, name string, typed T, change func(T)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k := key{resource, namespace, name}
	FromObject(s.mustGet(k), typed)
	change(typed)
	s.store(k, ToObject(typed), watch.Modified)
}

// Get reads an object into typed. It panics if the object does not exist.
func (s *Server) Get(resource, namespace, name string, typed runtime.Object) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	FromObject(s.mustGet(key{resource, namespace, name}), typed)
}

func (s *Server) mustGet(k key) *Object {
	obj, err := s.get(k)
	if err != nil {
		panic(err)
	}
	return obj
}

// Names returns the names of all objects of a resource.
func (s *Server) Names(resource string) (names []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for k := range s.objects {
		if k.resource == resource {
			names = append(names, k.name)
		}
	}
	return names
}

// ToObject converts an object with a kind of client-go's scheme.
func ToObject(typed runtime.Object) *Object {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		panic(err)
	}
	obj := &Object{Object: content}
	if kinds, _, err := scheme.Scheme.ObjectKinds(typed); err == nil {
		obj.SetGroupVersionKind(kinds[0])
	}
	return obj
}

// FromObject converts the object to one with a type.
func FromObject(obj *Object, typed runtime.Object) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed); err != nil {
		panic(err)
	}
}

const podIP = "10.0.0.1"

// StartPods is a function for Simulate. It schedules each Pod without scheduling gates to the node, and makes it ready at once, with the
// address 10.0.0.1.
func StartPods(node string) func(obj *Object) bool {
	return func(obj *Object) bool {
		if obj.GetKind() != "Pod" || obj.GetDeletionTimestamp() != nil {
			return false
		}
		var pod corev1.Pod
		FromObject(obj, &pod)
		if len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase != "" {
			return false
		}
		pod.Spec.NodeName = node
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP, PodIPs: []corev1.PodIP{{IP: podIP}}, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}}
		for _, container := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: container.Name, Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			})
		}
		obj.Object = ToObject(&pod).Object
		return true
	}
}

// BindPVCs is a function for Simulate. It binds each PVC to a volume of the requested capacity, and expands the volume on request.
func BindPVCs(obj *Object) bool {
	if obj.GetKind() != "PersistentVolumeClaim" || obj.GetDeletionTimestamp() != nil {
		return false
	}
	var pvc corev1.PersistentVolumeClaim
	FromObject(obj, &pvc)
	requested, capacity := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if pvc.Status.Phase == corev1.ClaimBound && capacity.Cmp(requested) >= 0 {
		return false
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		pvc.Status.CurrentVolumeAttributesClassName = pvc.Spec.VolumeAttributesClassName
	}
	pvc.Spec.VolumeName = "volume-" + pvc.Name
	pvc.Status.Phase = corev1.ClaimBound
	pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: requested}
	obj.Object = ToObject(&pvc).Object
	return true
}

// Terminate ends the containers of a Pod with this exit code.
func Terminate(obj *Object, exitCode int32) {
	var pod corev1.Pod
	FromObject(obj, &pod)
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}}
	}
	obj.Object = ToObject(&pod).Object
}

// EndEphemeralContainers ends the ephemeral containers of a Pod that have not ended, with this exit code and message. It returns
// whether there are any.
func EndEphemeralContainers(obj *Object, exitCode int32, message string) bool {
	var pod corev1.Pod
	FromObject(obj, &pod)
	if len(pod.Spec.EphemeralContainers) == len(pod.Status.EphemeralContainerStatuses) {
		return false
	}
	ended := map[string]bool{}
	for _, status := range pod.Status.EphemeralContainerStatuses {
		ended[status.Name] = true
	}
	for _, container := range pod.Spec.EphemeralContainers {
		if !ended[container.Name] {
			pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
				Name:  container.Name,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message}},
			})
		}
	}
	obj.Object = ToObject(&pod).Object
	return true
}

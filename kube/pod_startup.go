package kube

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PodStartup detects permanent failures of a Pod that starts. The zero value is ready to use.
type PodStartup struct {
	containers map[string]*containerStartup // by name
}

type containerStartup struct {
	failedPulls int
	lastReason  string // why the container waited at the last change
}

// Failures are permanent if they occur this often.
const (
	maxCrashes     = 3
	maxFailedPulls = 2
)

// Failed reports whether the container of the Pod cannot start without a change of the Pod or the cluster. It counts failures: call it
// for every change of the Pod. Init containers, which run first, count as well, but not other containers: an injected one may fail
// because it needs this one.
func (s *PodStartup) Failed(pod *corev1.Pod, container string) bool {
	if s.containers == nil {
		s.containers = map[string]*containerStartup{}
	}
	failed := false
	for i, status := range containerStatuses(pod) {
		if i >= len(pod.Status.InitContainerStatuses) && status.Name != container {
			continue
		}
		startup := s.containers[status.Name]
		if startup == nil {
			startup = &containerStartup{}
			s.containers[status.Name] = startup
		}
		failed = startup.failed(status) || failed
	}
	return failed
}

func (s *containerStartup) failed(status corev1.ContainerStatus) bool {
	waiting := cmp.Or(status.State.Waiting, &corev1.ContainerStateWaiting{})
	if waiting.Reason == reasonErrImagePull && s.lastReason != waiting.Reason {
		s.failedPulls++
	}
	s.lastReason = waiting.Reason
	switch waiting.Reason {
	case "InvalidImageName":
		return true
	case "CreateContainerConfigError":
		return isPermanentConfigError(waiting.Message)
	case reasonErrImagePull, reasonImagePullBackOff:
		return s.failedPulls >= maxFailedPulls && isPermanentPullError(waiting.Message)
	case "CrashLoopBackOff":
		return status.RestartCount >= maxCrashes
	}
	return false
}

// isPermanentConfigError reports whether a message of CreateContainerConfigError names a missing object to which the Pod refers, or a user
// as which it must not run. Other errors are transient: for example, a kubelet that just started has not read the Services yet
// (makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go, generateContainerConfig in pkg/kubelet/kuberuntime).
func isPermanentConfigError(message string) bool {
	return slices.ContainsFunc([]string{"not found", "couldn't find key", "runAsNonRoot", "non-root", "non-numeric user"},
		func(phrase string) bool { return strings.Contains(message, phrase) })
}

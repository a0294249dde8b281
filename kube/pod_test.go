package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

// waitingPod returns a Pod with a container that waits for this reason.
func waitingPod(reason, message string, restarts int32) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "vm", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}}
}

func unschedulablePod(message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message},
	}}}
}

// withInjected adds the containers of the second Pod before those of the first, under another name.
func withInjected(pod, injected *corev1.Pod) *corev1.Pod {
	for _, status := range injected.Status.ContainerStatuses {
		status.Name = "injected"
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{status}, pod.Status.ContainerStatuses...)
	}
	return pod
}

// withSidecar adds the containers of the second Pod to the init containers of the first.
func withSidecar(pod, sidecar *corev1.Pod) *corev1.Pod {
	pod.Status.InitContainerStatuses = sidecar.Status.ContainerStatuses
	return pod
}

var _ = Describe("A Pod that does not start", func() {
	DescribeTable("cannot start without a change if", func(expected bool, states ...*corev1.Pod) {
		var startup PodStartup
		var failed bool
		for _, pod := range states {
			failed = startup.Failed(pod, "vm")
		}
		Expect(failed).To(Equal(expected))
	},
		Entry("its image name is invalid", true, waitingPod("InvalidImageName", "", 0)),
		Entry("its Secret does not exist", true, waitingPod("CreateContainerConfigError", `secret "operators" not found`, 0)),
		Entry("its kubelet just started, and did not read the Services yet", false,
			waitingPod("CreateContainerConfigError", "services have not yet been read at least once, cannot construct envvars", 0)),
		Entry("its image was not found twice", true, waitingPod("ErrImagePull", "manifest unknown", 0), waitingPod("ImagePullBackOff", "", 0),
			waitingPod("ErrImagePull", "manifest unknown", 0)),
		Entry("its image was not found, but only once", false, waitingPod("ErrImagePull", "manifest unknown", 0)),
		Entry("its registry is unavailable, which may end", false, waitingPod("ErrImagePull", "timeout", 0), waitingPod("ImagePullBackOff", "timeout", 0),
			waitingPod("ErrImagePull", "timeout", 0)),
		Entry("it crashed three times", true, waitingPod("CrashLoopBackOff", "", 3)),
		Entry("it crashed once, which may end", false, waitingPod("CrashLoopBackOff", "", 1)),
		Entry("it runs, so that it can", false, &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "vm"}}}}),
		Entry("an injected container crashes, which may need it", false, withInjected(waitingPod("ContainerCreating", "", 0), waitingPod("CrashLoopBackOff", "", 3))),
		Entry("its image was not found, but only once while an injected container started", false,
			withInjected(waitingPod("ErrImagePull", "manifest unknown", 0), &corev1.Pod{}),
			withInjected(waitingPod("ErrImagePull", "manifest unknown", 0), waitingPod("ContainerCreating", "", 0)),
			withInjected(waitingPod("ErrImagePull", "manifest unknown", 0), waitingPod("ErrImagePull", "manifest unknown", 0))),
		Entry("its image name is invalid, while a sidecar restarts", true, withSidecar(waitingPod("InvalidImageName", "", 0), waitingPod("CrashLoopBackOff", "", 1))),
	)

	const (
		noCapacity  = "0/1 nodes are available: 1 Insufficient cpu."
		otherVolume = "1 node(s) didn't match PersistentVolume's node affinity"
	)
	DescribeTable("waits for", func(message string, node, unboundPVC bool, capacity, volume string) {
		pod := unschedulablePod(message)
		Expect(WaitsForNode(pod)).To(Equal(node))
		Expect(HasUnboundPVC(pod)).To(Equal(unboundPVC))
		Expect(InsufficientCapacity(pod)).To(Equal(capacity))
		Expect(VolumeNodeConflict(pod)).To(Equal(volume))
	},
		Entry("capacity", noCapacity, true, false, noCapacity, ""),
		Entry("a PVC", "pod has unbound immediate PersistentVolumeClaims", false, true, "", ""),
		Entry("the controller of ephemeral volumes", "waiting for ephemeral volume controller to create the PVC", false, false, "", ""),
		Entry("the node of its volume", otherVolume, true, false, "", otherVolume),
		Entry("nothing", "", false, false, "", ""),
	)

	It("may have an image for another platform", func() {
		Expect(WrongPlatform(waitingPod("ErrImagePull", "no match for platform in manifest", 0))).To(BeTrue())
		Expect(WrongPlatform(waitingPod("ErrImagePull", "timeout", 0))).To(BeFalse())
	})

	It("is described by the reports of the scheduler, the kubelet and its container, and by its newest warnings", func(ctx context.Context) {
		api := memoryapi.New()
		client, err := NewForConfig(api.Config(), "apps", 0)
		Expect(err).NotTo(HaveOccurred())
		now := time.Now()
		for i, message := range []string{"old", "new"} {
			api.Add("events", "apps", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("e", i)}, Type: corev1.EventTypeWarning,
				Reason: "FailedMount", Message: message, InvolvedObject: corev1.ObjectReference{UID: "uid"}, LastTimestamp: metav1.NewTime(now.Add(time.Duration(i) * time.Second))})
		}
		pod := unschedulablePod("no nodes")
		pod.UID = "uid"
		pod.Status.Reason, pod.Status.Message = "Evicted", "disk pressure"
		pod.Status.ContainerStatuses = waitingPod("ErrImagePull", "not found", 0).Status.ContainerStatuses
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "boom\n"}
		Expect(client.DiagnosePod(ctx, pod)).To(Equal("Evicted: disk pressure; not scheduled: no nodes; " +
			"container vm: ErrImagePull: not found; container vm exited with status 3 (Error): boom; FailedMount: new"))
	})
})

var _ = Describe("An ephemeral container", func() {
	withState := func(state corev1.ContainerState, id string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "check", State: state, ContainerID: id}}}}
	}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}

	It("ended, failed to start, was killed, or waits", func() {
		ended := &corev1.ContainerStateTerminated{ExitCode: 1}
		Expect(EphemeralTermination(withState(corev1.ContainerState{Terminated: ended}, ""), "check")).To(Equal(ended))
		Expect(EphemeralTermination(withState(waiting, ""), "other")).To(BeNil())
		Expect(EphemeralImagePullFailed(withState(waiting, ""), "check")).To(BeTrue())
		Expect(EphemeralNotStarted(withState(waiting, "containerd://1"), "check")).To(BeTrue())
		Expect(EphemeralNotStarted(withState(waiting, ""), "check")).To(BeFalse())
		Expect(IsAborted(&corev1.ContainerStateTerminated{ExitCode: 137})).To(BeTrue())
		Expect(FailedToStart(&corev1.ContainerStateTerminated{ExitCode: 128})).To(BeTrue())
		Expect(FailedToStart(&corev1.ContainerStateTerminated{ExitCode: 137})).To(BeFalse())
	})
})

var _ = DescribeTable("The volume limit of a node", func(limit int32, attached []corev1.UniqueVolumeName, expected string) {
	var list []corev1.AttachedVolume
	for _, name := range attached {
		list = append(list, corev1.AttachedVolume{Name: name})
	}
	csi := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "csi", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}, {Name: "unlimited"},
	}}}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: "v1"},
	}}}
	Expect(VolumeLimitExceeded(&corev1.Node{Status: corev1.NodeStatus{VolumesAttached: list}}, csi, []*corev1.PersistentVolume{volume})).To(Equal(expected))
},
	Entry("admits a volume", int32(2), []corev1.UniqueVolumeName{"kubernetes.io/csi/csi^v0"}, ""),
	Entry("admits a volume that is attached", int32(1), []corev1.UniqueVolumeName{"kubernetes.io/csi/csi^v1"}, ""),
	Entry("is exceeded", int32(1), []corev1.UniqueVolumeName{"kubernetes.io/csi/csi^v0", "kubernetes.io/csi/other^v2"},
		"driver csi has 1 of 1 volumes attached and would need 1 more"),
)

var _ = DescribeTable("The credentials of a client", func(config *rest.Config, kind string, autoRenewed, expired bool) {
	credentials, err := credentialsOf(config)
	Expect(err).NotTo(HaveOccurred())
	Expect(credentials.Kind).To(Equal(kind))
	Expect(credentials.AutoRenewed).To(Equal(autoRenewed))
	Expect(credentials.Expired(time.Now())).To(Equal(expired))
},
	Entry("are a token that expired", &rest.Config{BearerToken: "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp": 1}`)) + ".x"}, "token", false, true),
	Entry("are a token without an expiry", &rest.Config{BearerToken: "opaque"}, "token", false, false),
	Entry("are from a plugin", &rest.Config{ExecProvider: &clientcmdapi.ExecConfig{Command: "aws"}}, "credentials from credential plugin aws", true, false),
	Entry("are from an auth provider", &rest.Config{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}}, "credentials from auth provider oidc", true, false),
	Entry("are a password", &rest.Config{Username: "u"}, "username and password", false, false),
	Entry("do not exist", &rest.Config{}, "none", false, false),
)

var _ = It("HostAccess lists the programs and files of a kubeconfig", func() {
	access, err := Options{KubeconfigPath: "/etc/kubeconfig", Kubeconfig: `{clusters: [{name: c, cluster: {certificate-authority: /ca}}],
		users: [{name: u, user: {tokenFile: /token, exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]}`}.HostAccess()
	Expect(err).NotTo(HaveOccurred())
	Expect(access.Commands).To(ConsistOf(HaveField("Name", "aws")))
	Expect(access.Files).To(ConsistOf(HaveField("Name", "/etc/kubeconfig"), HaveField("Name", "/ca"), HaveField("Name", "/token")))
	_, err = Options{Kubeconfig: "]"}.HostAccess()
	Expect(err).To(MatchError(ContainSubstring("is not valid YAML")))
})

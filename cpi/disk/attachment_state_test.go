package disk

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// Statuses of the program of an attachment Pod.
var (
	neverRan  = corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	running   = corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	restarted = corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}
	backOff   = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	terminate = func(status int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status, Message: "the reason"}}
	}
	exited = func(status int32) corev1.ContainerStatus { return corev1.ContainerStatus{State: terminate(status)} }
	waits  = func(status int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: backOff, LastTerminationState: terminate(status), RestartCount: 1}
	}
)

// newAttachment returns an attachment Pod with the status of its program, and changes it.
func newAttachment(program corev1.ContainerStatus, changes ...func(*corev1.Pod)) manifest.AttachmentPod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{manifest.LabelRole: manifest.RoleAttachment}}}
	program.Name = manifest.OwnContainerName(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "injected", State: terminate(0)}, program}
	for _, change := range changes {
		change(pod)
	}
	return manifest.AttachmentPod{Pod: pod}
}

func gated(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: manifest.OwnerGate}}
}

func ready(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }

func failed(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }

// checks adds exclusivity checks with these statuses.
func checks(states ...corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i, state := range states {
			name := "exclusivity-check-" + strconv.Itoa(i+1)
			// The API server inserts patched containers before existing ones.
			pod.Spec.EphemeralContainers = slices.Insert(pod.Spec.EphemeralContainers, 0,
				corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
			pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
		}
	}
}

var _ = DescribeTable("An attachment Pod has the state",
	func(expected AttachmentState, program corev1.ContainerStatus, changes ...func(*corev1.Pod)) {
		Expect(StateOf(newAttachment(program, changes...))).To(Equal(expected))
	},
	Entry(nil, AttachmentGated, corev1.ContainerStatus{}, gated),
	Entry(nil, AttachmentPending, corev1.ContainerStatus{}),
	Entry(nil, AttachmentPending, neverRan),
	Entry(nil, AttachmentPreparing, running),
	Entry("Preparing: after it was killed", AttachmentPreparing, corev1.ContainerStatus{State: running.State, LastTerminationState: terminate(137), RestartCount: 1}),
	Entry(nil, AttachmentFailed, exited(1)),
	Entry("Failed: the kubelet starts it again later", AttachmentFailed, waits(1)),
	Entry("Failed: after a run that was killed", AttachmentFailed, corev1.ContainerStatus{State: terminate(1), LastTerminationState: terminate(137), RestartCount: 1}),
	Entry(nil, AttachmentPublished, running, ready),
	Entry("Published: the disk was in use at the last check", AttachmentPublished, running, ready, checks(terminate(1))),
	Entry("Published: the last check has no result", AttachmentPublished, running, ready, checks(terminate(137))),
	Entry("Published: the program started again after a check passed", AttachmentPublished, restarted, ready, checks(terminate(0))),
	Entry(nil, AttachmentChecking, running, ready, checks(corev1.ContainerState{})),
	Entry("Checking: not for the first time", AttachmentChecking, running, ready, checks(terminate(1), running.State)),
	Entry(nil, AttachmentUnready, exited(137), checks(running.State)),
	Entry("Unready: the program starts again", AttachmentUnready, running, checks(running.State)),
	Entry(nil, AttachmentChecked, running, ready, checks(terminate(1), terminate(0))),
	Entry(nil, AttachmentKilled, exited(137)),
	Entry("Killed: after a run that failed", AttachmentKilled, corev1.ContainerStatus{State: terminate(137), LastTerminationState: terminate(1), RestartCount: 1}),
	Entry("Killed: the kubelet starts it again later", AttachmentKilled, waits(137)),
	Entry("Killed: the Pod is still reported as ready", AttachmentKilled, waits(137), ready),
	Entry(nil, AttachmentLost, exited(137), failed),
	Entry("Lost: after a check that passed", AttachmentLost, exited(0), failed, checks(terminate(0))),
	Entry("Lost: deleted", AttachmentLost, exited(137), failed, deleted),
	Entry(nil, AttachmentRejected, corev1.ContainerStatus{}, failed),
	Entry("Rejected: deleted", AttachmentRejected, corev1.ContainerStatus{}, failed, deleted),
	Entry(nil, AttachmentCanceled, neverRan, deleted),
	Entry("Canceled: with its scheduling gate", AttachmentCanceled, corev1.ContainerStatus{}, gated, deleted),
	Entry(nil, AttachmentCanceling, running, deleted),
	Entry(nil, AttachmentWaiting, running, ready, deleted),
	Entry("Waiting: a check runs", AttachmentWaiting, running, ready, deleted, checks(running.State)),
	Entry(nil, AttachmentStopped, exited(1), deleted),
	Entry("Stopped: killed", AttachmentStopped, waits(137), deleted),
	Entry("Stopped: killed after it started again since a check passed", AttachmentStopped,
		corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, StartedAt: metav1.Now()}}},
		deleted, checks(terminate(0))),
	Entry(nil, AttachmentReleasing, running, ready, deleted, checks(terminate(0))),
	Entry(nil, AttachmentReleased, exited(0), deleted, checks(terminate(0))),
	Entry("Released: killed after the check passed", AttachmentReleased, exited(137), deleted, failed, checks(terminate(0))),
	Entry(nil, AttachmentExited, exited(0), deleted),
	Entry("Exited: the Pod is finished", AttachmentExited, exited(0), deleted, failed),
)

var _ = DescribeTable("The latest exclusivity check", func(lost bool, states ...corev1.ContainerState) {
	Expect(LostCheck(newAttachment(running, ready, checks(states...)))).To(Equal(lost))
},
	Entry("lost its result if it was killed", true, terminate(1), terminate(137)),
	Entry("lost its result if its program panicked", true, terminate(1), terminate(2)),
	Entry("passed", false, terminate(137), terminate(0)),
	Entry("found the disk in use", false, terminate(1)),
	Entry("runs", false, terminate(137), running.State),
	Entry("does not exist", false),
)

var _ = It("An attachment Pod that does not exist is absent", func() {
	Expect(StateOf(manifest.AttachmentPod{})).To(Equal(AttachmentAbsent))
})

// declaredStates returns the names of the constants of all states, and the states.
func declaredStates() map[string]AttachmentState {
	GinkgoHelper()
	source, err := os.ReadFile("attachment_state.go")
	Expect(err).NotTo(HaveOccurred())
	states := map[string]AttachmentState{}
	for _, constant := range regexp.MustCompile(`(?m)^\t(Attachment\w+) +AttachmentState = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		states[constant[1]] = AttachmentState(constant[2])
	}
	Expect(len(states)).To(BeNumerically(">", 15))
	return states
}

var _ = Describe("Each state of an attachment Pod", func() {
	It("has an entry in the table above", func() {
		table, err := os.ReadFile("attachment_state_test.go")
		Expect(err).NotTo(HaveOccurred())
		for name, state := range declaredStates() {
			if state != AttachmentAbsent {
				Expect(string(table)).To(MatchRegexp(`\tEntry\(.*, ` + name + `, `))
			}
		}
	})

	It("has the expected result of each method", func() {
		methods := []struct {
			word string
			is   func(AttachmentState) bool
		}{
			{"unstarted", AttachmentState.IsUnstarted}, {"checking", AttachmentState.IsChecking}, {"finished", AttachmentState.IsFinished},
			{"deleted", AttachmentState.IsDeleted}, {"published", AttachmentState.HasPublished}, {"guarded", AttachmentState.IsGuarded},
			{"released", AttachmentState.IsReleased}, {"exited", AttachmentState.HasExited}, {"ended", AttachmentState.HasEnded},
		}
		results := map[AttachmentState]string{}
		for _, state := range declaredStates() {
			var words []string
			for _, method := range methods {
				if method.is(state) {
					words = append(words, method.word)
				}
			}
			results[state] = strings.Join(words, " ")
		}
		Expect(results).To(Equal(map[AttachmentState]string{
			AttachmentAbsent:    "guarded",
			AttachmentGated:     "unstarted guarded",
			AttachmentPending:   "unstarted guarded",
			AttachmentPreparing: "guarded",
			AttachmentFailed:    "",
			AttachmentPublished: "published guarded",
			AttachmentChecking:  "checking published guarded",
			AttachmentUnready:   "checking",
			AttachmentChecked:   "published guarded",
			AttachmentKilled:    "",
			AttachmentLost:      "finished ended",
			AttachmentRejected:  "finished guarded ended",
			AttachmentCanceled:  "deleted guarded",
			AttachmentCanceling: "deleted guarded",
			AttachmentWaiting:   "deleted published guarded",
			AttachmentStopped:   "deleted",
			AttachmentReleasing: "deleted guarded released",
			AttachmentReleased:  "deleted guarded released exited ended",
			AttachmentExited:    "deleted guarded exited ended",
		}))
	})
})

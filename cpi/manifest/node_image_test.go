package manifest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("The image of bosh-node", func() {
	vmPod := runningPod(testVM())
	attachment := manifest.Attachment{Disk: "disk-1", SizeMiB: 64, Filesystem: "ext4", VM: vmPod, Director: "d1", NodeImage: nodeImage}.Pod()

	DescribeTable("is the one that the Pod mounts or runs:", func(pod *corev1.Pod) {
		Expect(manifest.NodeImage(pod)).To(Equal(nodeImage))
	},
		Entry("a VM", vmPod.Pod),
		Entry("an attachment", attachment.Pod),
		Entry("the attachment of a disk that is a volume of the VM Pod", idleAttachment().Pod),
		Entry("a reboot Pod", manifest.RebootPod(vmPod, "d1", nodeImage).Pod),
		Entry("a flush Pod", manifest.FlushPod(attachment, "d1", nodeImage).Pod),
		Entry("a probe", manifest.NodeProbePod(testVM(), "node-1").Pod),
	)

	It("is unknown for a Pod that has none", func() {
		Expect(manifest.NodeImage(&corev1.Pod{})).To(BeEmpty())
	})

	It("is the only program that Pods need, besides the test of jobs: no shell and no interpreter", func() {
		shell := regexp.MustCompile(`\b(ba|da)?sh\b|\bperl\b`)
		files, err := filepath.Glob("testdata/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		programs := map[string]bool{}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			var pod corev1.Pod
			Expect(yaml.Unmarshal(raw, &pod)).To(Succeed())
			for _, container := range pod.Spec.Containers {
				for _, command := range commands(container) {
					programs[command[0]] = true
					for _, word := range command {
						Expect(word).NotTo(MatchRegexp(shell.String()), "%s: %q", file, command)
					}
				}
			}
		}
		Expect(programs).To(And(HaveLen(3), HaveKey(api.InVolume), HaveKey(api.InImage), HaveKey("/usr/bin/test")))
	})
})

// commands returns all commands of a container.
func commands(container corev1.Container) (all [][]string) {
	all = append(all, append(container.Command, container.Args...))
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		if probe != nil && probe.Exec != nil {
			all = append(all, probe.Exec.Command)
		}
	}
	if container.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
			if hook != nil {
				all = append(all, hook.Exec.Command)
			}
		}
	}
	return all
}

var _ = Describe("The result of bosh-node", func() {
	terminated := func(message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: api.ExitFailed, Message: message}
	}
	encoded := func(result api.Result) string {
		raw, err := json.Marshal(result)
		Expect(err).NotTo(HaveOccurred())
		return string(raw)
	}
	unformatted := api.Result{Version: api.Version, Code: "volume-not-blank", Message: "cannot format disk-1: it has other content"}

	It("is a message with its code", func() {
		Expect(manifest.TerminationMessage(terminated(encoded(unformatted)))).To(
			Equal("cannot format disk-1: it has other content [volume-not-blank]"))
		Expect(manifest.NodeResult(terminated(encoded(unformatted)))).To(Equal(unformatted))
	})

	It("has the processes that use a disk", func() {
		users := []api.User{{Process: 12, Name: "postgres", Path: "/var/vcap/store", Mounted: true}}
		result := manifest.NodeResult(terminated(encoded(api.Result{Version: 1, Code: "disk-in-use", Message: users[0].String(), Users: users})))
		Expect(result.Users).To(Equal(users))
		Expect(result.Message).To(Equal("process 12 (postgres) has it mounted at /var/vcap/store"))
	})

	DescribeTable("is the message of the runtime if it is not a result:", func(message, shown string) {
		Expect(manifest.TerminationMessage(terminated(message))).To(Equal(shown))
	},
		Entry("the program did not start", "exec: \"/bosh/bin/bosh-node\": no such file or directory\n", `exec: "/bosh/bin/bosh-node": no such file or directory`),
		Entry("JSON of another program", `{"level": "info"}`, `{"level": "info"}`),
		Entry("a result that was cut", `{"version":1,"code":"disk-in-use","mess`, `{"version":1,"code":"disk-in-use","mess`),
		Entry("no message", "", ""),
	)

	It("is readable in a copy of the Pod, also of the last termination", func() {
		pod := runningPod(testVM()).Pod
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "vm", State: corev1.ContainerState{Terminated: terminated(encoded(unformatted))}},
			{Name: "proxy", LastTerminationState: corev1.ContainerState{Terminated: terminated("killed")}},
			{Name: "agent", LastTerminationState: corev1.ContainerState{Terminated: terminated(encoded(unformatted))}},
		}
		original := pod.DeepCopy()
		statuses := manifest.WithReadableResults(pod).Status.ContainerStatuses
		Expect(statuses[0].State.Terminated.Message).To(Equal(unformatted.String()))
		Expect(statuses[1].LastTerminationState.Terminated.Message).To(Equal("killed"))
		Expect(statuses[2].LastTerminationState.Terminated.Message).To(Equal(unformatted.String()))
		Expect(pod).To(Equal(original))
	})
})

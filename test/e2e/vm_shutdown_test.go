//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// gracefulJobScript installs a job that takes three seconds to stop, and then records on its disk that it stopped.
//
//go:embed testdata/graceful
var gracefulJobScript string

// terminationAfter runs the action, which must delete the VM, and returns the termination state of the VM's container.
func (vm *testVM) terminationAfter(ctx context.Context, action func()) *corev1.ContainerStateTerminated {
	GinkgoHelper()
	watcher, err := vm.env.cluster.CoreV1().Pods(vm.env.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + vm.cid})
	Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()
	action()
	var last *corev1.ContainerStateTerminated
	for event := range watcher.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		Expect(ok).To(BeTrue(), "%v", event.Object)
		if terminated := pod.Status.ContainerStatuses[0].State.Terminated; terminated != nil {
			last = terminated
		}
		if event.Type == watch.Deleted {
			break
		}
	}
	Expect(last).NotTo(BeNil())
	return last
}

var _ = Describe("The shutdown of a VM", Label("vms"), func() {
	DescribeTable("gives jobs time to stop",
		func(ctx context.Context, stemcell string) {
			env := newTestEnv(ctx)
			vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{})
			disk := env.createDisk(ctx, 64, map[string]any{})
			vm.attach(ctx, disk)
			vm.run(ctx, gracefulJobScript)
			waitForStart := func() {
				GinkgoHelper()
				Eventually(func() (string, error) { return vm.tryRun(ctx, "cat /var/vcap/store/log") }).WithContext(ctx).Should(HaveSuffix("started"))
			}
			waitForStart()

			By("rebooting the VM")
			env.mustCall(ctx, "reboot_vm", vm.cid)
			waitForStart()
			Expect(vm.run(ctx, "cat /var/vcap/store/log")).To(Equal("started\nstopped\nstarted"))

			for _, command := range []string{"reboot", "poweroff"} {
				By("running " + command + " in the VM")
				restarts := vm.restartCount(ctx)
				vm.run(ctx, command)
				Eventually(vm.restartCount).WithContext(ctx).Should(Equal(restarts + 1))
				waitForStart()
			}

			By("deleting the VM")
			const killed = 128 + 9 // exit code of a process killed by SIGKILL, which the kubelet sends after the grace period of 30 s
			Expect(vm.terminationAfter(ctx, func() { env.mustCall(ctx, "delete_vm", vm.cid) }).ExitCode).NotTo(BeEquivalentTo(killed))
			events, err := env.cluster.CoreV1().Events(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + vm.cid})
			Expect(err).NotTo(HaveOccurred())
			for _, event := range events.Items {
				Expect(event.Reason).NotTo(Equal("FailedPreStopHook"), event.Message)
			}
			newVM := env.createVM(ctx)
			newVM.attach(ctx, disk)
			Expect(newVM.run(ctx, "cat /var/vcap/store/log")).To(Equal(strings.Repeat("started\nstopped\n", 3) + "started\nstopped"))
		},
		stemcellEntries("extended"))
})

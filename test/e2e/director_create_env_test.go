//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runDemo runs scripts/demo like a user.
func runDemo(ctx context.Context, state, namespace string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "../../scripts/demo", args...)
	command.Env = append(os.Environ(), "DEMO_DIR="+state, "DEMO_NAMESPACE="+namespace, "KUBECONFIG=")
	out, err := command.CombinedOutput()
	return string(out), err
}

// newDemoEnv returns a testEnv and a directory for the state of scripts/demo.
func newDemoEnv(ctx context.Context) (env *testEnv, state string) {
	GinkgoHelper()
	env = newTestEnv(ctx)
	state, err := os.MkdirTemp("", "demo")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, state)
	return env, state
}

var _ = Describe("bosh create-env", Label("create-env"), Ordered, Serial, func() {
	var (
		env                        *testEnv
		state                      string
		previousMounts, otherLoops []string // of other specs
	)
	BeforeAll(func(ctx context.Context) {
		env, state = newDemoEnv(ctx)
		previousMounts, otherLoops = strings.Fields(env.kubeletMounts(ctx)), env.listVolumeLoops(ctx)
	})

	It("starts a job that responds, and counts connections on the persistent disk", func(ctx context.Context) {
		out, err := runDemo(ctx, state, env.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("counted in /var/vcap/store/keeper/count"))
		Expect(out).To(MatchRegexp(`/var/vcap/store is /dev/bosh/disk-`))
	}, NodeTimeout(longTest))

	It("changes nothing when it runs again", func(ctx context.Context) {
		out, err := runDemo(ctx, state, env.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("No deployment, stemcell or release changes. Skipping deploy."))
		Expect(out).To(ContainSubstring("connection 2,"))
	}, NodeTimeout(longTest))

	It("forgets a VM of an embedded cluster that was removed", func(ctx context.Context) {
		earlier := GinkgoT().TempDir()
		Expect(os.Mkdir(earlier+"/env", 0o700)).To(Succeed())
		Expect(os.WriteFile(earlier+"/env/up.yml", []byte("cluster: {uid: 22b09a38-7e15-41c9-aa8a-48a023128637}\n"), 0o600)).To(Succeed())
		out, err := runDemo(ctx, earlier, env.namespace, "delete-env")
		Expect(err).To(HaveOccurred(), "there is no VM")
		Expect(out).NotTo(ContainSubstring("another cluster"))
		Expect(earlier + "/env").NotTo(BeADirectory())
	}, NodeTimeout(longTest))

	It("leaves no Pod, Secret, PVC or mount after delete-env", func(ctx context.Context) {
		loops := slices.DeleteFunc(env.listVolumeLoops(ctx), func(line string) bool { return slices.Contains(otherLoops, line) })
		Expect(loops).NotTo(BeEmpty())
		out, err := runDemo(ctx, state, env.namespace, "delete-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(func(g Gomega) {
			remaining, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "-n", env.namespace, "pods,secrets,persistentvolumeclaims", "-o", "name")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(remaining).To(BeEmpty())
			g.Expect(previousMounts).To(ContainElements(strings.Fields(env.kubeletMounts(ctx))))
			for _, line := range loops {
				g.Expect(env.listNodeLoops(ctx)).NotTo(ContainSubstring(line))
			}
			devices, _ := filepath.Glob("/run/bosh-kubernetes-cpi/" + env.namespace + "/*/*")
			g.Expect(devices).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(longTest))
})

var _ = Describe("A running VM", Label("create-env"), Ordered, Serial, func() {
	var (
		env  *testEnv
		vm   *testVM
		disk string
	)
	BeforeAll(func(ctx context.Context) {
		env = newTestEnv(ctx)
		vm = env.createVM(ctx)
		disk = env.createDisk(ctx, 64, map[string]any{})
	}, NodeTimeout(longTest))

	It("is unchanged while a disk is attached, used and detached", func(ctx context.Context) {
		previous := vm.identity(ctx)
		vm.attach(ctx, disk)
		Expect(vm.identity(ctx)).To(Equal(previous))
		vm.run(ctx, "echo kept > /var/vcap/store/file")
		vm.detach(ctx, disk)
		Expect(vm.identity(ctx)).To(Equal(previous))
		vm.attach(ctx, disk)
		Expect(vm.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
		vm.detach(ctx, disk)
		Expect(vm.identity(ctx)).To(Equal(previous))
	})

	It("is unchanged when attach_disk is called twice, or detach_disk without an attached disk", func(ctx context.Context) {
		previous := vm.identity(ctx)
		Expect(env.mustFail(ctx, "detach_disk", vm.cid, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		vm.attach(ctx, disk)
		attachment, loops := env.attachmentPod(ctx, disk), env.volumeLoopDevices(ctx)
		env.mustCall(ctx, "attach_disk", vm.cid, disk)
		Expect(env.attachmentPod(ctx, disk).ResourceVersion).To(Equal(attachment.ResourceVersion))
		Expect(env.volumeLoopDevices(ctx)).To(Equal(loops))
		vm.run(ctx, "echo again >> /var/vcap/store/file")
		vm.detach(ctx, disk)
		Expect(vm.identity(ctx)).To(Equal(previous))
	})

	It("gets its disk when the CPI is killed at any request of attach_disk and the call is retried", func(ctx context.Context) {
		previous, loops := vm.identity(ctx), env.volumeLoopDevices(ctx)
		interruptedCall := env.newInterruptedCaller()
		for n := 1; ; n++ {
			interrupted := interruptedCall(ctx, n, "attach_disk", vm.cid, disk)
			By(fmt.Sprintf("killed at request %d: %v", n, interrupted))
			vm.attach(ctx, disk)
			vm.run(ctx, "grep -q kept /var/vcap/store/file")
			Expect(env.volumeLoopDevices(ctx)).To(HaveLen(len(loops)+1), "loop devices accumulate")
			vm.detach(ctx, disk)
			Expect(vm.identity(ctx)).To(Equal(previous))
			if !interrupted {
				Expect(n).To(BeNumerically(">", 3))
				break
			}
		}
	}, NodeTimeout(longTest))

	It("can be deleted with the disk attached, and the disk can be attached to another VM", func(ctx context.Context) {
		vm.attach(ctx, disk)
		env.mustCall(ctx, "delete_vm", vm.cid)
		_, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).To(HaveOccurred())
		otherVM := env.createVM(ctx)
		otherVM.attach(ctx, disk)
		Expect(otherVM.run(ctx, "cat /var/vcap/store/file")).To(ContainSubstring("kept"))
		env.mustCall(ctx, "delete_vm", otherVM.cid)
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// demo runs scripts/demo as a user does.
func demo(ctx context.Context, state, namespace string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "../../scripts/demo", args...)
	command.Env = append(os.Environ(), "DEMO_DIR="+state, "DEMO_NAMESPACE="+namespace, "KUBECONFIG=")
	out, err := command.CombinedOutput()
	return string(out), err
}

// newDemo is a world, and a folder for what scripts/demo keeps.
func newDemo(ctx context.Context) (w *world, state string) {
	GinkgoHelper()
	w = newWorld(ctx)
	state, err := os.MkdirTemp("", "demo")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, state)
	return w, state
}

var _ = Describe("bosh create-env", Label("create-env"), Ordered, Serial, func() {
	var (
		w     *world
		state string
	)
	BeforeAll(func(ctx context.Context) { w, state = newDemo(ctx) })

	It("ends with a job that answers and counts on the persistent disk", func(ctx context.Context) {
		out, err := demo(ctx, state, w.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("counted in /var/vcap/store/keeper/count"))
		Expect(out).To(MatchRegexp(`/var/vcap/store is /dev/bosh/disk-`))
	}, NodeTimeout(longTest))

	It("finds nothing to do when it is run again", func(ctx context.Context) {
		out, err := demo(ctx, state, w.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("No deployment, stemcell or release changes. Skipping deploy."))
		Expect(out).To(ContainSubstring("asked 2 times"))
	}, NodeTimeout(longTest))

	It("is undone by delete-env, which leaves no Pod, Secret, claim or mount", func(ctx context.Context) {
		loops := w.loopLines(ctx)
		Expect(loops).NotTo(BeEmpty())
		out, err := demo(ctx, state, w.namespace, "delete-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(func(g Gomega) {
			left, err := w.embedded.ControlPlane.Kubectl(ctx, "get", "-n", w.namespace, "pods,secrets,persistentvolumeclaims", "-o", "name")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left).To(BeEmpty())
			g.Expect(w.mounts(ctx)).To(BeEmpty())
			for _, line := range loops {
				g.Expect(w.loops(ctx)).NotTo(ContainSubstring(line))
			}
			devices, _ := filepath.Glob("/run/bosh-kubernetes-cpi/" + w.namespace + "/*/*")
			g.Expect(devices).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(longTest))
})

var _ = Describe("A running machine and its disk", Label("create-env"), Ordered, Serial, func() {
	var (
		w    *world
		m    *machine
		disk string
	)
	BeforeAll(func(ctx context.Context) {
		w = newWorld(ctx)
		m = w.createMachine(ctx)
		disk = w.createDisk(ctx, 64, map[string]any{})
	}, NodeTimeout(longTest))

	It("stays the same machine while a disk is attached, used and detached", func(ctx context.Context) {
		before := m.identity(ctx)
		m.attach(ctx, disk)
		Expect(m.identity(ctx)).To(Equal(before))
		m.run(ctx, "echo kept > /var/vcap/store/file")
		m.detach(ctx, disk)
		Expect(m.identity(ctx)).To(Equal(before))
		m.attach(ctx, disk)
		Expect(m.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
		m.detach(ctx, disk)
		Expect(m.identity(ctx)).To(Equal(before))
	})

	It("does not notice a disk that is attached twice, or detached without being attached", func(ctx context.Context) {
		before := m.identity(ctx)
		Expect(w.fails(ctx, "detach_disk", m.cid, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		m.attach(ctx, disk)
		attachment, loops := w.attachment(ctx, disk), w.devices(ctx)
		w.must(ctx, "attach_disk", m.cid, disk)
		Expect(w.attachment(ctx, disk).ResourceVersion).To(Equal(attachment.ResourceVersion))
		Expect(w.devices(ctx)).To(Equal(loops))
		m.run(ctx, "echo again >> /var/vcap/store/file")
		m.detach(ctx, disk)
		Expect(m.identity(ctx)).To(Equal(before))
	})

	It("works on after the CPI was killed at any request of attach_disk, and the call was repeated", func(ctx context.Context) {
		before, loops := m.identity(ctx), w.devices(ctx)
		killed := w.killing()
		for n := 1; ; n++ {
			cut := killed(ctx, n, "attach_disk", m.cid, disk)
			By(fmt.Sprintf("killed at request %d: %v", n, cut))
			m.attach(ctx, disk)
			m.run(ctx, "grep -q kept /var/vcap/store/file")
			Expect(w.devices(ctx)).To(HaveLen(len(loops)+1), "loop devices stack")
			m.detach(ctx, disk)
			Expect(m.identity(ctx)).To(Equal(before))
			if !cut {
				Expect(n).To(BeNumerically(">", 3))
				break
			}
		}
	}, NodeTimeout(longTest))

	It("can be deleted with the disk attached, which survives and is free", func(ctx context.Context) {
		m.attach(ctx, disk)
		w.must(ctx, "delete_vm", m.cid)
		_, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).To(HaveOccurred())
		other := w.createMachine(ctx)
		other.attach(ctx, disk)
		Expect(other.run(ctx, "cat /var/vcap/store/file")).To(ContainSubstring("kept"))
		w.must(ctx, "delete_vm", other.cid)
		w.must(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})

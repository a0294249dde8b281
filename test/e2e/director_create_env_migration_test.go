//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// One environment changes its disk several times, to cover migrations between all pairs of volume modes.
var _ = Describe("bosh create-env with a changed disk", Label("disks", "extended", labelSharedKernel), Ordered, func() {
	block := fmt.Sprintf("{storage_class: %s, volume_mode: Block}", embedded.CSIClass)
	const filesystem = "{}"
	var (
		env          *testEnv
		state        string
		checksum     string
		previousDisk string
		count        int // number of connections, counted by the job on the disk
	)
	BeforeAll(func(ctx context.Context) { env, state = newDemoEnv(ctx) })

	// runCreateEnv runs create-env and returns its VM and disk.
	runCreateEnv := func(ctx context.Context, sizeMiB int, properties string) (*testVM, string) {
		GinkgoHelper()
		GinkgoT().Setenv("DEMO_DISK_MIB", strconv.Itoa(sizeMiB))
		GinkgoT().Setenv("DEMO_DISK_CLOUD_PROPERTIES", properties)
		out, err := runDemo(ctx, state, env.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		count++
		Expect(out).To(ContainSubstring(fmt.Sprintf("connection %d,", count)))
		vms, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
		Expect(err).NotTo(HaveOccurred())
		Expect(vms.Items).To(HaveLen(1))
		vm := &testVM{env: env, cid: vms.Items[0].Name}
		disk := strings.TrimPrefix(vm.run(ctx, "findmnt --noheadings --output SOURCE /var/vcap/store"), "/dev/bosh/")
		Expect(vm.diskSizeMiB(ctx, disk)).To(Equal(sizeMiB))
		Expect(env.pvcNames(ctx)).To(ConsistOf(disk), "the old disk is deleted")
		return vm, disk
	}

	It("starts with 1 GiB of data on a Filesystem PVC", func(ctx context.Context) {
		vm, disk := runCreateEnv(ctx, 1536, filesystem)
		checksum, previousDisk = vm.run(ctx, fillGiB), disk
	}, NodeTimeout(longTest))

	for _, step := range []struct {
		from, to   string
		sizeMiB    int
		properties string
	}{
		{"Filesystem", "Block", 1600, block},
		{"Block", "Block", 1664, block},
		{"Block", "Filesystem", 1792, filesystem},
		{"Filesystem", "Filesystem", 1728, filesystem},
	} {
		It(fmt.Sprintf("moves the data from a %s PVC to a %s PVC of %d MiB", step.from, step.to, step.sizeMiB), func(ctx context.Context) {
			vm, disk := runCreateEnv(ctx, step.sizeMiB, step.properties)
			Expect(disk).NotTo(Equal(previousDisk))
			Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
			previousDisk = disk
		}, NodeTimeout(longTest))
	}

	It("leaves no disk after delete-env", func(ctx context.Context) {
		out, err := runDemo(ctx, state, env.namespace, "delete-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(env.pvcNames).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(longTest))
})

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

	"bosh-kubernetes-cpi/test/embedded"
)

// One environment goes from disk to disk, so that each kind of claim is migrated to each.
var _ = Describe("bosh create-env with another disk", Label("disks", "extended", thisMachine), Ordered, func() {
	block := fmt.Sprintf("{storage_class: %s, volume_mode: Block}", embedded.CSIClass)
	const filesystem = "{}"
	var (
		w        *world
		state    string
		checksum string
		former   string
		count    int // how often the job was asked, as it keeps on the disk
	)
	BeforeAll(func(ctx context.Context) { w, state = newDemo(ctx) })

	// created runs create-env, and returns its machine and disk.
	created := func(ctx context.Context, sizeMiB int, properties string) (*machine, string) {
		GinkgoHelper()
		GinkgoT().Setenv("DEMO_DISK_MIB", strconv.Itoa(sizeMiB))
		GinkgoT().Setenv("DEMO_DISK_CLOUD_PROPERTIES", properties)
		out, err := demo(ctx, state, w.namespace, "create-env")
		Expect(err).NotTo(HaveOccurred(), out)
		count++
		Expect(out).To(ContainSubstring(fmt.Sprintf("asked %d times", count)))
		vms, err := w.cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
		Expect(err).NotTo(HaveOccurred())
		Expect(vms.Items).To(HaveLen(1))
		m := &machine{w: w, cid: vms.Items[0].Name}
		disk := strings.TrimPrefix(m.run(ctx, "findmnt --noheadings --output SOURCE /var/vcap/store"), "/dev/bosh/")
		Expect(m.sizeMiB(ctx, disk)).To(Equal(sizeMiB))
		Expect(w.claims(ctx)).To(ConsistOf(disk), "the old disk is gone")
		return m, disk
	}

	It("begins with 1 GiB of data on a Filesystem claim", func(ctx context.Context) {
		m, disk := created(ctx, 1536, filesystem)
		checksum, former = m.run(ctx, fillGiB), disk
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
		It(fmt.Sprintf("moves the data from a %s claim to a %s claim of %d MiB", step.from, step.to, step.sizeMiB), func(ctx context.Context) {
			m, disk := created(ctx, step.sizeMiB, step.properties)
			Expect(disk).NotTo(Equal(former))
			Expect(m.run(ctx, checkGiB)).To(Equal(checksum))
			former = disk
		}, NodeTimeout(longTest))
	}

	It("is undone by delete-env, which leaves no disk", func(ctx context.Context) {
		out, err := demo(ctx, state, w.namespace, "delete-env")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(w.claims).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(longTest))
})

//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// Checks the cgroup layout of a VM with runc and the host's cgroup v2 hierarchy, because the nodes of the embedded cluster
// use cgroup v1. vm_own_node_test.go tests a whole VM on cgroup v2.
var _ = Describe("A container on cgroup v2 that starts like a VM with runit", Label("vms", labelSharedKernel), func() {
	It("creates containers in its own cgroup, including from BOSH's monit, and supports exec", func(ctx context.Context) {
		library, err := filepath.Abs("../../cpi/node/lib")
		Expect(err).NotTo(HaveOccurred())
		output, err := embedded.Run(ctx, "bash", "testdata/cgroups", library, GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred(), output)
		if output == "no controller\n" {
			Skip("the kernel's cgroup v2 has no controller for huge pages")
		}
		Expect(output).To(MatchRegexp(`^init: /init
mounts: 1, shown: 1
nested: 0::/vm/nested-\d+
monit: 0::/vm/vm/init/monit-\d+
exec: 0::/GROUP/container/init
$`))
	}, NodeTimeout(2*time.Minute))
})

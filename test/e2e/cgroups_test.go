//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/embedded"
)

// What a kernel and a runtime make of how a machine's cgroups are laid out, on any machine: the nodes of the embedded
// cluster have cgroup v1. A whole machine on cgroup v2 is in vm_node_test.go.
var _ = Describe("A container that begins as a machine with runit does, on cgroup v2", Label("machines", labelSharedKernel), func() {
	It("makes containers within its own cgroup, also as BOSH's monit does, and is entered beside them", func(ctx context.Context) {
		library, err := filepath.Abs("../../kube/manifest/node/lib")
		Expect(err).NotTo(HaveOccurred())
		output, err := embedded.Run(ctx, "bash", "testdata/cgroups", library, GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred(), output)
		if output == "no controller\n" {
			Skip("the kernel's cgroup v2 has no controller for huge pages")
		}
		Expect(output).To(MatchRegexp(`^init: /init
mounts: 1, shown: 1
beside: 0::/machine/beside-\d+
monit's: 0::/machine/machine/init/monits-\d+
exec: 0::/GROUP/container/init
$`))
	}, NodeTimeout(2*time.Minute))
})

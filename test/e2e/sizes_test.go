//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/embedded"
)

// sizes are what a machine's /proc tells of it.
type sizes struct{ MemoryMiB, Processors int }

func (m *machine) sizes(ctx context.Context) (told sizes, err error) {
	out, err := m.try(ctx, "free --mebi | awk '/Mem:/ { print $2 }'; grep --count ^processor /proc/cpuinfo")
	if err == nil {
		_, err = fmt.Sscan(out, &told.MemoryMiB, &told.Processors)
	}
	return told, err
}

// memory is what the agent tells the director of the machine's: how much is used, and which part of all that is, in whole percents.
func (m *machine) memory(ctx context.Context) (usedMiB, percent float64) {
	GinkgoHelper()
	var state struct {
		Vitals struct {
			Mem struct{ KB, Percent json.Number }
		}
	}
	Expect(json.Unmarshal([]byte(m.tell(ctx, "get_state", "full")), &state)).To(Succeed())
	used, err := state.Vitals.Mem.KB.Float64()
	Expect(err).NotTo(HaveOccurred())
	percent, err = state.Vitals.Mem.Percent.Float64()
	Expect(err).NotTo(HaveOccurred())
	return used / 1024, percent
}

var _ = Describe("What a machine takes for its size", Label("machines", thisMachine), Serial, func() {
	DescribeTable("is its own on a node with lxcfs, the node's while that is away, and no reason to restart",
		func(ctx context.Context, stemcell string) {
			node := embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1).Nodes[0]
			w := newWorldWith(ctx, map[string]any{"pods": map[string]any{"lxcfs": node.LXCFSRoot()}})
			m := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{"cpu": "500m", "memory": 384})
			nodes, err := m.sizes(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.log(ctx)).To(ContainSubstring("the node has no lxcfs"))
			Expect(nodes.MemoryMiB).To(BeNumerically(">", 384))
			before := m.identity(ctx)

			begin := func() {
				GinkgoHelper()
				Expect(node.LXCFS().Start()).To(Succeed())
				Eventually(m.sizes).WithContext(ctx).Should(Equal(sizes{384, 1}), func() string { return m.log(ctx) })
			}
			end := func(ctx context.Context) {
				GinkgoHelper()
				Expect(node.LXCFS().Kill()).To(Succeed())
				// As the unit of Debian's package does; what is mounted of a process that has ended is none for mountpoint(1).
				_, err := node.Exec(ctx, "sh", "-c", `! findmnt --mountpoint "$0" || umount --lazy "$0"`, node.LXCFSRoot())
				Expect(err).NotTo(HaveOccurred())
			}
			DeferCleanup(end)
			begin()
			used, percent := m.memory(ctx)
			Expect(used*100/384).To(BeNumerically("~", percent, 1), "the part of the machine's memory, not of the node's")
			Expect(strconv.ParseFloat(m.run(ctx, "cut --delimiter ' ' --fields 1 /proc/uptime"), 64)).To(BeNumerically("<", 600))

			end(ctx)
			Eventually(m.sizes).WithContext(ctx).Should(Equal(nodes))
			m.awaitAgent(ctx)
			begin()
			Expect(m.identity(ctx)).To(Equal(before))

			m.killInit(ctx)
			m.awaitAgent(ctx)
			Eventually(m.sizes).WithContext(ctx).Should(Equal(sizes{384, 1}))
		}, stemcellKinds("extended"))
})

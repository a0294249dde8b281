//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
)

// loot is on another machine's disk.
const loot = "on-the-disk-of-another-machine"

// prey is what a machine's root goes after: another machine, and its node.
type prey struct {
	address, node string // of the other machine, and of the node
	kubelet       int32  // its port there
	device        string // of the other machine's disk, as "major minor"
}

// attack is a command that succeeds when root in a machine has reached what is not the machine's.
type attack struct {
	what    string
	command func(prey) string
	succeed map[string]bool // by the machine's security
}

const (
	privileged = "privileged"
	reduced    = "privileged: false, with SYS_ADMIN"
)

func always(command string) func(prey) string { return func(prey) string { return command } }

var (
	nobody    = map[string]bool{}
	byRoot    = map[string]bool{privileged: true}
	byAnybody = map[string]bool{privileged: true, reduced: true}
)

// attacks are what docs/trust.md tells of.
var attacks = []attack{
	{"another machine's disk", func(p prey) string {
		return "mknod /tmp/disk b " + p.device + " && dd if=/tmp/disk bs=1M count=64 2>/dev/null | grep -q -a " + loot
	}, byRoot},
	{"kernel settings of the node", always("setting=$(</proc/sys/kernel/core_pattern) && echo \"$setting\" >/proc/sys/kernel/core_pattern"), byRoot},
	{"kernel modules", always("(( 0x$(awk '/CapEff/ { print $2 }' /proc/self/status) & 1 << 16 ))"), byRoot},
	{"the node's cgroups", always("ls -d /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods*"), nobody},
	{"the node's processes", always("grep -qx kubelet /proc/[0-9]*/comm"), nobody},
	{"the node's network", always("ip -o link | grep -q cali"), nobody},
	{"other machines' folders on the node", always("ls -d /run/bosh-kubernetes-cpi"), nobody},
	{"the API of Kubernetes, as somebody", always("ls /var/run/secrets/kubernetes.io/serviceaccount/token"), nobody},
	{"another machine's agent's port", func(p prey) string { return reach(p.address, 6868) }, byAnybody},
	{"the kubelet's port", func(p prey) string { return reach(p.node, p.kubelet) }, byAnybody},
}

func reach(address string, port int32) string {
	return fmt.Sprintf("timeout 5 bash -c '</dev/tcp/%s/%d'", address, port)
}

var _ = Describe("Root in a machine", Label("trust", "extended"), func() {
	It("reaches what docs/trust.md says, and nothing else", func(ctx context.Context) {
		w := newWorld(ctx)
		goal := w.bringPrey(ctx)
		attackers := map[string]*machine{
			privileged: w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL"), nil),
			reduced: w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL"), map[string]any{
				"security": map[string]any{"privileged": false, "capabilities": map[string]any{"add": []string{"SYS_ADMIN"}}}}),
		}
		var table strings.Builder
		columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprintf(columns, "reaches\t%s\t%s\n", privileged, reduced)
		var wrong []string
		for _, each := range attacks {
			fmt.Fprint(columns, each.what)
			for _, kind := range []string{privileged, reduced} {
				said, err := attackers[kind].try(ctx, each.command(goal))
				fmt.Fprintf(columns, "\t%v", err == nil)
				if (err == nil) != each.succeed[kind] {
					wrong = append(wrong, fmt.Sprintf("%s, %s: %v: %s", each.what, kind, err, said))
				}
			}
			fmt.Fprintln(columns)
		}
		Expect(columns.Flush()).To(Succeed())
		AddReportEntry("what root in a machine reaches", table.String())
		Expect(wrong).To(BeEmpty(), table.String())
	}, NodeTimeout(longTest))
})

// bringPrey makes a machine whose disk has something to find on it.
func (w *world) bringPrey(ctx context.Context) prey {
	GinkgoHelper()
	m := w.createMachine(ctx)
	disk := w.createDisk(ctx, 64, map[string]any{})
	m.attach(ctx, disk)
	m.run(ctx, "echo "+loot+" >/var/vcap/store/loot && sync")
	pair := regexp.MustCompile(`\d+:\d+`).FindString(m.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store"))
	Expect(pair).NotTo(BeEmpty())
	pod := m.pod(ctx)
	node, err := w.cluster.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return prey{
		address: m.address, node: pod.Status.HostIP, kubelet: node.Status.DaemonEndpoints.KubeletEndpoint.Port,
		device: strings.Replace(pair, ":", " ", 1),
	}
}

var _ = Describe("A deep check", Label("trust"), func() {
	It("holds on the node, in less than a minute, and leaves nothing", func(ctx context.Context) {
		w := newWorld(ctx)
		properties, err := stemcellProperties(os.Getenv("E2E_STEMCELL"))
		Expect(err).NotTo(HaveOccurred())
		image := fmt.Sprintf("%s@%s", properties["image_reference"], properties["digest"])
		started := time.Now()
		said, err := embedded.Run(ctx, w.CPI, "-configPath", w.Config, "-check", "-deep", "-image", image)
		Expect(err).NotTo(HaveOccurred(), said)
		AddReportEntry("the check", said)
		Expect(time.Since(started)).To(BeNumerically("<", time.Minute))
		for _, check := range []string{"run-machine", "loop-devices", "machine-state", "cluster-dns", "hairpin", "requested-address"} {
			Expect(said).To(MatchRegexp(`(?m)^` + check + ` +\w+ +ok`))
		}
		for _, kind := range []string{"pods", "services"} {
			left, err := w.embedded.ControlPlane.Kubectl(ctx, "get", kind, "-n", w.namespace, "-o", "name")
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeEmpty())
		}
	}, NodeTimeout(longTest))
})

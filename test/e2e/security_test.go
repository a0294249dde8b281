//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/test/attacks"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// diskSecret is the content of a file on another VM's disk.
const diskSecret = "on-the-disk-of-another-vm"

// Runs the attacks of test/attacks, and the attacks of root in a VM, on real nodes.
var _ = Describe("The attacks of docs/explanation/security.md", Label("security", "extended"), Ordered, ContinueOnFailure, Serial, func() {
	var (
		env      *testEnv
		target   attacks.EscapeTarget
		cgroupV1 bool
		tried    int
	)
	BeforeAll(func(ctx context.Context) {
		env = newTestEnv(ctx)
		target = env.createAttackTarget(ctx)
		filesystem, err := env.node.Shell(ctx, "stat --file-system --format %T /sys/fs/cgroup")
		Expect(err).NotTo(HaveOccurred())
		cgroupV1 = filesystem != "cgroup2fs"
	}, NodeTimeout(longTest))

	for _, kind := range attacks.VMKinds() {
		var labels Labels
		if kind.Name == attacks.Sandboxed {
			labels = Label(labelSharedKernel)
		}
		It("give root in a VM only the access that the page documents: "+kind.Name, labels, func(ctx context.Context) {
			if kind.Name == attacks.Sandboxed {
				Expect(env.embedded.ControlPlane.Apply(ctx, gVisorManifest)).To(Succeed())
			}
			attacker := env.createVMFromSpec(ctx, vmSpec{properties: kind.Properties})
			var mismatches []string
			var table strings.Builder
			columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
			for _, escape := range attacks.Escapes() {
				out, err := attacker.tryRun(ctx, escape.Command(target))
				fmt.Fprintf(columns, "%s\t%v\n", escape.Name, err == nil)
				notTried := err != nil && regexp.MustCompile(`exit code 12[67]`).MatchString(err.Error())
				if notTried || (err == nil) != escape.Succeeds(kind.Name, cgroupV1) {
					mismatches = append(mismatches, fmt.Sprintf("%s: %v: %s", escape.Name, err, out))
				}
			}
			Expect(columns.Flush()).To(Succeed())
			AddReportEntry("escapes of root in a VM: "+kind.Name, "\n"+table.String(), ReportEntryVisibilityAlways)
			Expect(mismatches).To(BeEmpty(), strings.Join(mismatches, "\n"))
			env.mustCall(ctx, "delete_vm", attacker.cid)
			tried++
		}, NodeTimeout(longTest))
	}

	It("let the CPI's token do only what the page lists", func(ctx context.Context) {
		env.disableDefaultStorageClass(ctx)
		raw, err := os.ReadFile("../../manifests/admission-policy.yaml")
		Expect(err).NotTo(HaveOccurred())
		// The policy stays: it applies only to namespaces with its label, and after its deletion, Kubernetes 1.36.3 reads no new limits until the
		// API server restarts.
		Expect(env.embedded.ControlPlane.Apply(ctx, string(raw))).To(Succeed())
		policy, err := attacks.ReadPolicy("../..")
		Expect(err).NotTo(HaveOccurred())
		admin, err := clientcmd.BuildConfigFromFlags("", env.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		attackers := map[string]*attacks.Attacker{}
		var mismatches []string
		for _, attack := range attacks.All() {
			limits := fmt.Sprint(attack.Limits)
			if attackers[limits] == nil {
				attacker, err := attacks.NewAttacker(ctx, admin, "../..", fmt.Sprintf("%s-attacker-%d", env.namespace, len(attackers)), attacks.EnforcedLabels, attack.Limits)
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(func(ctx context.Context) { Expect(attacker.Remove(ctx, admin)).To(Succeed()) })
				Eventually(policy.CheckEnforced).WithContext(ctx).WithArguments(attacker).Should(Succeed())
				attackers[limits] = attacker
			}
			if err := attack.CheckOutcome(attack.Try(ctx, attackers[limits]), true, false); err != nil {
				mismatches = append(mismatches, err.Error())
			}
		}
		Expect(mismatches).To(BeEmpty(), strings.Join(mismatches, "\n"))
		tried++
	}, NodeTimeout(longTest))

	It("have all run", Label(labelSharedKernel), func() {
		Expect(tried).To(Equal(len(attacks.VMKinds()) + 1))
		AddReportEntry(attacks.Summary(), ReportEntryVisibilityAlways)
	})
})

// createAttackTarget creates a VM with a secret on its disk.
func (env *testEnv) createAttackTarget(ctx context.Context) attacks.EscapeTarget {
	GinkgoHelper()
	vm := env.createVM(ctx)
	disk := env.createDisk(ctx, 64, map[string]any{})
	vm.attach(ctx, disk)
	vm.run(ctx, "echo "+diskSecret+" >/var/vcap/store/loot && sync")
	pair := regexp.MustCompile(`\d+:\d+`).FindString(vm.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store"))
	Expect(pair).NotTo(BeEmpty())
	pod := vm.pod(ctx)
	return attacks.EscapeTarget{
		Address: vm.address, Node: pod.Status.HostIP, KubeletPort: env.kubeletPort(ctx, pod.Spec.NodeName),
		Device: strings.Replace(pair, ":", " ", 1), DiskContent: diskSecret,
	}
}

func (env *testEnv) kubeletPort(ctx context.Context, node string) int32 {
	GinkgoHelper()
	object, err := env.cluster.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return object.Status.DaemonEndpoints.KubeletEndpoint.Port
}

// disableDefaultStorageClass removes the default StorageClass's annotation until the spec finishes.
func (env *testEnv) disableDefaultStorageClass(ctx context.Context) {
	GinkgoHelper()
	const annotation = "storageclass.kubernetes.io/is-default-class"
	classes := env.cluster.StorageV1().StorageClasses()
	list, err := classes.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, class := range list.Items {
		if class.Annotations[annotation] != "true" {
			continue
		}
		set := func(ctx context.Context, value string) {
			GinkgoHelper()
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
			_, err := classes.Patch(ctx, class.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		set(ctx, "false")
		DeferCleanup(func(ctx context.Context) { set(ctx, "true") })
	}
}

// metadataService is the address at which clouds provide the credentials of a node.
const metadataService = "169.254.169.254"

// serveMetadata starts a server at the address of the metadata service on the node, and prints its PID.
const serveMetadata = `ip address replace ` + metadataService + `/32 dev lo
perl -MIO::Socket::INET -e '
	my $server = IO::Socket::INET->new(LocalAddr => "` + metadataService + `", LocalPort => 80, Listen => 5, ReuseAddr => 1) or die "$!";
	$| = 1;
	if (my $pid = fork) { print $pid; exit }
	open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
	while (my $client = $server->accept) { close $client }'`

// canConnect reports whether a program in the VM can connect to the address.
func (vm *testVM) canConnect(ctx context.Context, address string) bool {
	GinkgoHelper()
	host, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	_, err = vm.tryRun(ctx, fmt.Sprintf("timeout 3 bash -c '</dev/tcp/%s/%s'", host, port))
	return err == nil
}

var _ = Describe("The network policies", Label("security", "extended", labelSharedKernel), Serial, func() {
	It("block VMs from metadata services, nodes and other Pods only", func(ctx context.Context) {
		env, otherEnv := newTestEnv(ctx), newTestEnv(ctx)
		first, second := env.embedded.Nodes[0], env.ensureSecondNode(ctx)
		pid, err := second.Shell(ctx, serveMetadata)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := second.Shell(ctx, "kill "+pid+"; ip address delete "+metadataService+"/32 dev lo")
			Expect(err).NotTo(HaveOccurred())
		})
		Expect(second.Felix().Start()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(second.StopFelix(ctx)).To(Succeed()) })
		const publicAddress = "198.51.100.1"
		_, err = embedded.Run(ctx, "ip", "address", "replace", publicAddress+"/32", "dev", "lo")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := embedded.Run(ctx, "ip", "address", "delete", publicAddress+"/32", "dev", "lo")
			Expect(err).NotTo(HaveOccurred())
		})
		outside := listen(publicAddress)
		// The API server of the embedded cluster only listens on the loopback address of its host, which is the first node.
		server := listen(first.Address)

		DeferCleanup(env.deleteVMs)
		DeferCleanup(otherEnv.deleteVMs)
		vm := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(second)})
		labeled := nodeSelector(second)
		maps.Copy(labeled, map[string]any{"labels": map[string]any{"bosh-director": "test"}})
		inCluster := env.createVMFromSpec(ctx, vmSpec{properties: labeled})
		neighbor, other := env.createVM(ctx), otherEnv.createVM(ctx)
		kubelet := func(node *embedded.Node) string {
			return net.JoinHostPort(node.Address, strconv.Itoa(int(env.kubeletPort(ctx, node.Name))))
		}
		blocked := map[string]string{
			"the metadata service":        metadataService + ":80",
			"the kubelet of its node":     kubelet(second),
			"the kubelet of another node": kubelet(first),
			"a Pod of another namespace":  other.address + ":6868",
			"the API server's address":    server.String(),
		}
		allowed := map[string]string{
			"another VM of its namespace": neighbor.address + ":6868",
			"a public address":            outside.String(),
		}
		for name, address := range blocked {
			Expect(vm.canConnect(ctx, address)).To(BeTrue(), "%s, without the policies", name)
		}
		raw, err := os.ReadFile("../../manifests/network-policy.yaml")
		Expect(err).NotTo(HaveOccurred())
		policies := strings.ReplaceAll(string(raw), "port: 6443", "port: "+strconv.Itoa(server.Port))
		_, err = embedded.RunInput(ctx, policies, "kubectl", "--kubeconfig", env.kubeconfig, "apply", "--namespace", env.namespace, "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		for name, address := range blocked {
			Eventually(vm.canConnect).WithContext(ctx).WithArguments(address).Should(BeFalse(), "%s, with the policies", name)
		}
		for name, address := range allowed {
			Expect(vm.canConnect(ctx, address)).To(BeTrue(), "%s, with the policies", name)
		}
		Expect(inCluster.canConnect(ctx, server.String())).To(BeTrue(), "a director")
		Expect(inCluster.canConnect(ctx, metadataService+":80")).To(BeFalse(), "a director")
		_, err = second.Shell(ctx, "timeout 3 bash -c '</dev/tcp/"+vm.address+"/6868'")
		Expect(err).NotTo(HaveOccurred(), "the node reaches its VMs")
	}, NodeTimeout(longTest))
})

// listen accepts and closes connections at the address until the end of the spec. It returns the address with the port.
func listen(address string) *net.TCPAddr {
	GinkgoHelper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	go func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			_ = client.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr)
}

var _ = Describe("A deep check", Label("security"), func() {
	It("passes on the node, and leaves no objects", func(ctx context.Context) {
		env := newTestEnv(ctx)
		properties, err := stemcellProperties(os.Getenv("E2E_STEMCELL"))
		Expect(err).NotTo(HaveOccurred())
		image := fmt.Sprintf("%s@%s", properties["image_reference"], properties["digest"])
		output, err := embedded.Run(ctx, env.CPI, "-configPath", env.Config, "-check", "-deep", "-image", image)
		Expect(err).NotTo(HaveOccurred(), output)
		AddReportEntry("the check", output)
		for _, check := range []string{"run-vm", "loop-devices", "vm-state", "cluster-dns", "hairpin", "requested-address"} {
			Expect(output).To(MatchRegexp(`(?m)^` + check + ` +\w+ +ok`))
		}
		for _, kind := range []string{"pods", "services"} {
			remaining, err := env.embedded.ControlPlane.Kubectl(ctx, "get", kind, "-n", env.namespace, "-o", "name")
			Expect(err).NotTo(HaveOccurred())
			Expect(remaining).To(BeEmpty())
		}
	}, NodeTimeout(longTest))
})

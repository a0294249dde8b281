//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// keeperJobScript installs a job that records at each start whether the disk is mounted.
//
//go:embed testdata/keeper
var keeperJobScript string

// addState adds everything that a restart must keep: files on the disk and on the VM, changes of the system, credentials and a running job.
func (vm *testVM) addState(ctx context.Context) {
	GinkgoHelper()
	vm.run(ctx, "echo kept >/var/vcap/store/file; echo kept >/var/vcap/data/marker")
	vm.run(ctx, modifySystemScript)
	vm.rotateCredentials(ctx, "rotated")
	vm.run(ctx, keeperJobScript)
	vm.waitForJob(ctx)
}

// persistentState returns the state that a restart must not change.
func (vm *testVM) persistentState(ctx context.Context) map[string]string {
	GinkgoHelper()
	pod := vm.pod(ctx)
	return map[string]string{
		"uid":      string(pod.UID),
		"address":  pod.Status.PodIP,
		"settings": vm.run(ctx, "cat /var/vcap/bosh/update_settings.json"),
		"records":  vm.run(ctx, "cat /var/vcap/instance/dns/records.json"),
		"job":      vm.run(ctx, "cat /var/vcap/jobs/keeper/bin/ctl"),
		"data":     vm.run(ctx, "cat /var/vcap/data/marker"),
		"trusted":  vm.run(ctx, "cat /usr/local/share/ca-certificates/* 2>/dev/null | wc -c"),
		"disk":     vm.run(ctx, "findmnt --noheadings --output SOURCE,MAJ:MIN /var/vcap/store"),
		"file":     vm.run(ctx, "cat /var/vcap/store/file"),
		"changes":  vm.run(ctx, printModificationsScript),
		"keys":     vm.run(ctx, "cat /etc/ssh/ssh_host_*_key.pub | sha256sum"),
	}
}

// modifySystemScript changes files outside of /var/vcap, like jobs and operators. printModificationsScript prints the changes.
const (
	modifySystemScript = `useradd --create-home --shell /bin/bash jumpbox && install -d -o jumpbox -m 0700 ~jumpbox/.ssh && echo key >~jumpbox/.ssh/authorized_keys
		echo 'vm.swappiness = 10' >/etc/sysctl.d/99-job.conf; echo '10.0.0.9 db' >>/etc/hosts; echo '@reboot root true' >/etc/cron.d/job; rm /etc/motd
		mkdir -p /var/lib/database /opt/product /srv/www && echo rows >/var/lib/database/table && echo program >/opt/product/bin && echo page >/srv/www/index
		echo tool >/usr/local/bin/tool; echo note >/root/note; chmod 0710 /root`
	printModificationsScript = `getent passwd jumpbox; stat -c '%U %a' ~jumpbox/.ssh /root; cat ~jumpbox/.ssh/authorized_keys /etc/sysctl.d/99-job.conf /etc/cron.d/job \
		/var/lib/database/table /opt/product/bin /srv/www/index /usr/local/bin/tool /root/note; grep -c '10.0.0.9 db' /etc/hosts; ls /etc/motd 2>&1 || true`
)

// restartCount returns how often the VM's container restarted.
func (vm *testVM) restartCount(ctx context.Context) int32 {
	GinkgoHelper()
	return vm.pod(ctx).Status.ContainerStatuses[0].RestartCount
}

// killInit kills the VM's PID 1 from its node, because no process in the VM can do that.
func (vm *testVM) killInit(ctx context.Context) {
	GinkgoHelper()
	previous := vm.restartCount(ctx)
	container := strings.TrimPrefix(vm.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	_, err := vm.env.node.Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", container)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		g.Expect(vm.restartCount(ctx)).To(BeNumerically(">", previous))
	}).WithContext(ctx).Should(Succeed())
}

// waitForJob waits until monit runs the job "keeper".
func (vm *testVM) waitForJob(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		return vm.tryRun(ctx, "kill -0 $(cat /var/vcap/sys/run/keeper/keeper.pid) && pgrep --count --full --exact 'sleep infinity'")
	}, 3*time.Minute).WithContext(ctx).Should(Equal("1"), func() string { return vm.logs(ctx) })
}

// rotateCredentials sends new credentials to the agent, like the director after every create_vm. The agent exits, and restarts with the
// new credentials.
func (vm *testVM) rotateCredentials(ctx context.Context, password string) {
	GinkgoHelper()
	agentEnv, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	certificates := agentEnv["bosh"].(map[string]any)["mbus"].(map[string]any)["cert"].(map[string]any)
	agent := vm.agentPID(ctx)
	_, _ = vm.agent.Call(ctx, "update_settings", map[string]any{ // the agent may exit before it responds
		"trusted_certs": certificates["ca"],
		"mbus":          map[string]any{"urls": []string{fmt.Sprintf("https://mbus:%s@0.0.0.0:6868", password)}, "cert": certificates},
	})
	vm.agent = director.Agent{Address: vm.address, Password: password}
	vm.waitForAgent(ctx)
	Expect(vm.agentPID(ctx)).NotTo(Equal(agent))
}

func (vm *testVM) agentPID(ctx context.Context) string {
	GinkgoHelper()
	return vm.run(ctx, "pgrep --exact bosh-agent")
}

// stemcellEntries returns table entries for both kinds of stemcells. The labels apply to the entry with systemd.
func stemcellEntries(systemd ...string) []TableEntry {
	return []TableEntry{
		Entry("with runit", "E2E_STEMCELL", NodeTimeout(longTest)),
		Entry("with systemd", "E2E_STEMCELL_SYSTEMD", Label(systemd...), NodeTimeout(longTest)),
	}
}

// expectSurvivesRestarts creates a VM with a disk and a job, and expects it to keep its state over each kind of restart.
func (env *testEnv) expectSurvivesRestarts(ctx context.Context, stemcell string) {
	GinkgoHelper()
	vm := env.createVMFromStemcell(ctx, stemcell, map[string]any{})
	disk := env.createDisk(ctx, 64, map[string]any{})
	vm.attach(ctx, disk)
	vm.addState(ctx)
	previous := vm.persistentState(ctx)

	By("killing the agent, which its supervisor restarts in the same container")
	agent, restarts := vm.agentPID(ctx), vm.restartCount(ctx)
	vm.run(ctx, "kill -KILL "+agent)
	Eventually(func() (string, error) { return vm.tryRun(ctx, "pgrep --exact bosh-agent") }).WithContext(ctx).
		ShouldNot(Or(BeEmpty(), Equal(agent)))
	vm.waitForAgent(ctx)
	Expect(vm.restartCount(ctx)).To(Equal(restarts))
	vm.waitForJob(ctx)

	By("killing PID 1")
	vm.killInit(ctx)
	vm.waitForAgent(ctx)
	vm.waitForJob(ctx)
	Expect(vm.persistentState(ctx)).To(Equal(previous))

	By("rebooting the VM")
	restarts = vm.restartCount(ctx)
	env.mustCall(ctx, "reboot_vm", vm.cid)
	Expect(vm.restartCount(ctx)).To(Equal(restarts + 1))
	vm.waitForAgent(ctx)
	vm.waitForJob(ctx)
	Expect(vm.persistentState(ctx)).To(Equal(previous))
	starts := strings.Fields(vm.run(ctx, "cat /var/vcap/data/keeper.starts"))
	Expect(starts).To(Equal([]string{"with", "with", "with"}))

	By("rebooting the VM while its jobs are stopped")
	vm.callAgent(ctx, "stop")
	env.mustCall(ctx, "reboot_vm", vm.cid)
	vm.waitForAgent(ctx)
	Eventually(func() (string, error) {
		return vm.tryRun(ctx, "/var/vcap/bosh/bin/monit summary")
	}).WithContext(ctx).Should(MatchRegexp(`keeper.*not monitored`))
	vm.callAgent(ctx, "start")
	vm.waitForJob(ctx)

	By("rebooting the VM after detaching the disk")
	vm.callAgent(ctx, "stop")
	vm.detach(ctx, disk)
	env.mustCall(ctx, "reboot_vm", vm.cid)
	vm.waitForAgent(ctx)
	vm.run(ctx, "! mountpoint -q /var/vcap/store")
	vm.attach(ctx, disk)
	Expect(vm.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))

	By("deleting the VM")
	env.mustCall(ctx, "delete_vm", vm.cid)
}

var _ = Describe("A VM restart", Label("vms"), func() {
	DescribeTable("keeps the VM's state, and mounts its disk before any job starts",
		func(ctx context.Context, stemcell string) {
			newTestEnv(ctx).expectSurvivesRestarts(ctx, os.Getenv(stemcell))
		},
		stemcellEntries("extended"))

	It("keeps the VM's state if its node boots with another address, as nodes of kind can", func(ctx context.Context) {
		env := newTestEnv(ctx)
		node := env.ensureSecondNode(ctx)
		address := node.Address
		vm := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(node)})
		disk := env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIClass})
		vm.attach(ctx, disk)
		vm.addState(ctx)
		vm.run(ctx, "sync") // a power cut loses unwritten data
		state := func() map[string]string {
			state := vm.persistentState(ctx)
			delete(state, "disk") // its device number can change
			return state
		}
		previous, restarts := state(), vm.restartCount(ctx)
		boot := func(ctx context.Context, address string) {
			Expect(node.PowerOff(ctx)).To(Succeed())
			Expect(node.ChangeAddress(ctx, address)).To(Succeed())
			Expect(node.PowerOn(ctx, false)).To(Succeed())
		}

		DeferCleanup(boot, address)
		boot(ctx, embedded.SpareNodeAddress)
		env.waitForRestart(ctx, vm.cid, restarts)
		vm.waitForAgent(ctx)
		vm.waitForJob(ctx)
		Expect(vm.pod(ctx).Status.HostIP).To(Equal(embedded.SpareNodeAddress))
		Expect(state()).To(Equal(previous))
		vm.callAgent(ctx, "stop")
		vm.detach(ctx, disk)
	}, Label("extended", labelSharedKernel), Serial, NodeTimeout(longTest))

	It("fails in the middle of a migration between two disks, instead of using the wrong disk", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx)
		vm.attach(ctx, env.createDisk(ctx, 64, map[string]any{}))
		vm.attach(ctx, env.createDisk(ctx, 64, map[string]any{}))
		vm.killInit(ctx)
		Eventually(func() string {
			terminated := vm.pod(ctx).Status.ContainerStatuses[0].LastTerminationState.Terminated
			if terminated == nil {
				return ""
			}
			return terminated.Message
		}).WithContext(ctx).Should(ContainSubstring("in the middle of a migration"))
	}, NodeTimeout(longTest))

	It("fails with VMNotFound if the VM does not exist", func(ctx context.Context) {
		Expect(newTestEnv(ctx).mustFail(ctx, "reboot_vm", "agent-none").Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})
})

var _ = Describe("A VM with systemd", Label("vms"), func() {
	It("has its own cgroups, the cluster's name servers, and no failed unit", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVMFromStemcell(ctx, os.Getenv("E2E_STEMCELL_SYSTEMD"), map[string]any{})
		Eventually(func() (string, error) { return vm.tryRun(ctx, "systemctl is-system-running") }).WithContext(ctx).
			Should(Equal("running"), func() string { return vm.run(ctx, "systemctl --failed --no-pager; systemctl list-jobs --no-pager") })
		vm.run(ctx, "systemctl start logrotate.service")
		Expect(vm.run(ctx, "cat /run/systemd/resolved.conf.d/kubernetes.conf")).To(ContainSubstring("FallbackDNS="))
		Expect(vm.run(ctx, "cat /proc/1/comm")).To(Equal("systemd"))
		Expect(vm.run(ctx, "cat /proc/1/cgroup")).To(MatchRegexp(`(?m)^\d+:(name=systemd)?:/\S*[0-9a-f]{64}\S*/init\.scope$`))
	}, NodeTimeout(longTest))
})

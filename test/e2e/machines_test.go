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

	"bosh-kubernetes-cpi/test/director"
)

// keeper is a job that notes on every start whether the disk was there.
//
//go:embed testdata/keeper
var keeper string

// state is what a machine must have after a restart as before it.
func (m *machine) state(ctx context.Context) map[string]string {
	GinkgoHelper()
	pod := m.pod(ctx)
	return map[string]string{
		"uid":      string(pod.UID),
		"address":  pod.Status.PodIP,
		"settings": m.run(ctx, "cat /var/vcap/bosh/update_settings.json"),
		"records":  m.run(ctx, "cat /var/vcap/instance/dns/records.json"),
		"job":      m.run(ctx, "cat /var/vcap/jobs/keeper/bin/ctl"),
		"data":     m.run(ctx, "cat /var/vcap/data/marker"),
		"trusted":  m.run(ctx, "cat /usr/local/share/ca-certificates/* 2>/dev/null | wc -c"),
		"disk":     m.run(ctx, "findmnt --noheadings --output SOURCE,MAJ:MIN /var/vcap/store"),
		"file":     m.run(ctx, "cat /var/vcap/store/file"),
		"changes":  m.run(ctx, changed),
		"keys":     m.run(ctx, "cat /etc/ssh/ssh_host_*_key.pub | sha256sum"),
	}
}

// change is what jobs and operators do to a machine outside of /var/vcap; changed prints it.
const (
	change = `useradd --create-home --shell /bin/bash jumpbox && install -d -o jumpbox -m 0700 ~jumpbox/.ssh && echo key >~jumpbox/.ssh/authorized_keys
		echo 'vm.swappiness = 10' >/etc/sysctl.d/99-job.conf; echo '10.0.0.9 db' >>/etc/hosts; echo '@reboot root true' >/etc/cron.d/job; rm /etc/motd
		mkdir -p /var/lib/database /opt/product /srv/www && echo rows >/var/lib/database/table && echo program >/opt/product/bin && echo page >/srv/www/index
		echo tool >/usr/local/bin/tool; echo note >/root/note; chmod 0710 /root`
	changed = `getent passwd jumpbox; stat -c '%U %a' ~jumpbox/.ssh /root; cat ~jumpbox/.ssh/authorized_keys /etc/sysctl.d/99-job.conf /etc/cron.d/job \
		/var/lib/database/table /opt/product/bin /srv/www/index /usr/local/bin/tool /root/note; grep -c '10.0.0.9 db' /etc/hosts; ls /etc/motd 2>&1 || true`
)

// restarts returns how often the machine's container has restarted.
func (m *machine) restarts(ctx context.Context) int32 {
	GinkgoHelper()
	return m.pod(ctx).Status.ContainerStatuses[0].RestartCount
}

// killInit kills the machine's PID 1 as its node sees it: nothing inside can do that.
func (m *machine) killInit(ctx context.Context) {
	GinkgoHelper()
	before := m.restarts(ctx)
	container := strings.TrimPrefix(m.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	_, err := m.w.node.Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", container)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		g.Expect(m.restarts(ctx)).To(BeNumerically(">", before))
	}).WithContext(ctx).Should(Succeed())
}

// awaitJob waits until monit runs the job.
func (m *machine) awaitJob(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		return m.try(ctx, "kill -0 $(cat /var/vcap/sys/run/keeper/keeper.pid) && pgrep --count --full --exact 'sleep infinity'")
	}, 3*time.Minute).WithContext(ctx).Should(Equal("1"), func() string { return m.log(ctx) })
}

// rotate gives the agent new credentials, as the director does after every create_vm: the agent ends
// itself, and comes back with them.
func (m *machine) rotate(ctx context.Context, password string) {
	GinkgoHelper()
	env, err := director.AgentEnv()
	Expect(err).NotTo(HaveOccurred())
	certificates := env["bosh"].(map[string]any)["mbus"].(map[string]any)["cert"].(map[string]any)
	agent := m.agentProcess(ctx)
	_, _ = m.agent.Call(ctx, "update_settings", map[string]any{ // the agent may be gone before it answers
		"trusted_certs": certificates["ca"],
		"mbus":          map[string]any{"urls": []string{fmt.Sprintf("https://mbus:%s@0.0.0.0:6868", password)}, "cert": certificates},
	})
	m.agent = director.Agent{Address: m.address, Password: password}
	m.awaitAgent(ctx)
	Expect(m.agentProcess(ctx)).NotTo(Equal(agent))
}

func (m *machine) agentProcess(ctx context.Context) string {
	GinkgoHelper()
	return m.run(ctx, "pgrep --exact bosh-agent")
}

// stemcellKinds are machines of both kinds. Of those with systemd the labels say when they are tried.
func stemcellKinds(systemd ...string) []TableEntry {
	return []TableEntry{
		Entry("with runit", "E2E_STEMCELL", NodeTimeout(longTest)),
		Entry("with systemd", "E2E_STEMCELL_SYSTEMD", Label(systemd...), NodeTimeout(longTest)),
	}
}

// restartsAsItWas makes a machine with a disk and a job, and expects it to be the same one after each kind of restart.
func (w *world) restartsAsItWas(ctx context.Context, stemcell string) {
	GinkgoHelper()
	m := w.createMachineFrom(ctx, stemcell, map[string]any{})
	disk := w.createDisk(ctx, 64, map[string]any{})
	m.attach(ctx, disk)
	m.run(ctx, "echo kept >/var/vcap/store/file; echo kept >/var/vcap/data/marker")
	m.run(ctx, change)
	m.rotate(ctx, "rotated")
	m.run(ctx, keeper)
	m.awaitJob(ctx)
	before := m.state(ctx)

	By("the agent's end: its supervisor starts it again, and the container goes on")
	agent, restarts := m.agentProcess(ctx), m.restarts(ctx)
	m.run(ctx, "kill -KILL "+agent)
	Eventually(func() (string, error) { return m.try(ctx, "pgrep --exact bosh-agent") }).WithContext(ctx).
		ShouldNot(Or(BeEmpty(), Equal(agent)))
	m.awaitAgent(ctx)
	Expect(m.restarts(ctx)).To(Equal(restarts))
	m.awaitJob(ctx)

	By("a killed PID 1")
	m.killInit(ctx)
	m.awaitAgent(ctx)
	m.awaitJob(ctx)
	Expect(m.state(ctx)).To(Equal(before))

	By("reboot_vm")
	restarts = m.restarts(ctx)
	w.must(ctx, "reboot_vm", m.cid)
	Expect(m.restarts(ctx)).To(Equal(restarts + 1))
	m.awaitAgent(ctx)
	m.awaitJob(ctx)
	Expect(m.state(ctx)).To(Equal(before))
	starts := strings.Fields(m.run(ctx, "cat /var/vcap/data/keeper.starts"))
	Expect(starts).To(Equal([]string{"with", "with", "with"}))

	By("a reboot while the director has stopped the jobs")
	m.tell(ctx, "stop")
	w.must(ctx, "reboot_vm", m.cid)
	m.awaitAgent(ctx)
	Eventually(func() (string, error) {
		return m.try(ctx, "/var/vcap/bosh/bin/monit summary")
	}).WithContext(ctx).Should(MatchRegexp(`keeper.*not monitored`))
	m.tell(ctx, "start")
	m.awaitJob(ctx)

	By("a reboot after the disk was detached")
	m.tell(ctx, "stop")
	m.detach(ctx, disk)
	w.must(ctx, "reboot_vm", m.cid)
	m.awaitAgent(ctx)
	m.run(ctx, "! mountpoint -q /var/vcap/store")
	m.attach(ctx, disk)
	Expect(m.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))

	By("its end")
	w.must(ctx, "delete_vm", m.cid)
}

var _ = Describe("A machine that restarts", Label("machines"), func() {
	DescribeTable("is the same machine again, with its disk there before any job",
		func(ctx context.Context, stemcell string) { newWorld(ctx).restartsAsItWas(ctx, os.Getenv(stemcell)) },
		stemcellKinds())

	It("in the middle of a migration between two disks does not run with the wrong one", func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.createMachine(ctx)
		m.attach(ctx, w.createDisk(ctx, 64, map[string]any{}))
		m.attach(ctx, w.createDisk(ctx, 64, map[string]any{}))
		m.killInit(ctx)
		Eventually(func() string {
			ended := m.pod(ctx).Status.ContainerStatuses[0].LastTerminationState.Terminated
			if ended == nil {
				return ""
			}
			return ended.Message
		}).WithContext(ctx).Should(ContainSubstring("in the middle of a migration"))
	}, NodeTimeout(longTest))

	It("is not found when it is not there", func(ctx context.Context) {
		Expect(newWorld(ctx).fails(ctx, "reboot_vm", "agent-none").Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})
})

// Both kinds of stemcells boot without anything that failed.
var _ = Describe("A machine with systemd", Label("machines"), func() {
	It("has its own cgroups and the cluster's name servers, and no unit that failed", func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL_SYSTEMD"), map[string]any{})
		Eventually(func() (string, error) { return m.try(ctx, "systemctl is-system-running") }).WithContext(ctx).
			Should(Equal("running"), func() string { return m.run(ctx, "systemctl --failed --no-pager; systemctl list-jobs --no-pager") })
		Expect(m.run(ctx, "cat /run/systemd/resolved.conf.d/kubernetes.conf")).To(ContainSubstring("FallbackDNS="))
		Expect(m.run(ctx, "cat /proc/1/comm")).To(Equal("systemd"))
		Expect(m.run(ctx, "cat /proc/1/cgroup")).To(MatchRegexp(`(?m)^\d+:(name=systemd)?:/\S*[0-9a-f]{64}\S*/init\.scope$`))
	}, NodeTimeout(longTest))
})

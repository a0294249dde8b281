//go:build linux

package agent_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/agent"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
	. "bosh-kubernetes-cpi/test/harness/processtest"
)

func TestAgent(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "agent")
}

var _ = Describe("The agent", func() {
	var root Root
	BeforeEach(func() {
		root = New()
		root.Add(Process{ID: 2, Name: "kernel thread"})
		root.Add(Process{ID: 7, Name: "monit"})
		root.Link("/usr/bin/monit", "proc/7/exe")
		root.Link("/var/vcap/bosh/bin/bosh-agent", "proc/self/exe")
	})
	startAgent := func(sockets ...string) {
		GinkgoHelper()
		root.Add(Process{ID: 8, Name: "bosh-agent"})
		root.Link("/var/vcap/bosh/bin/bosh-agent", "proc/8/exe")
		for i, socket := range sockets {
			root.Link(socket, fmt.Sprintf("proc/8/fd/%d", i))
		}
		root.Write("proc/8/net/tcp", strings.Join([]string{
			"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
			"   0: 0100007F:8E0A 0100007F:0B06 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0",
			"   1: 0200F40A:8E0A 0600000A:107E 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0",
			"   2: 0200F40A:8E0B 0600000A:107E 02 00000000:00000000 00:00000000 00000000     0        0 13 1 0",
			"   3: 00000000:1AD4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0",
			"",
		}, "\n"))
	}
	failAt := func(path string, errno unix.Errno) system.System {
		sys := root.System()
		sys.Before = func(_, called string) error {
			if called == path {
				return errno
			}
			return nil
		}
		return sys
	}

	It("runs if a process executes it", func() {
		Expect(agent.Running(root.System())).To(MatchError("the agent does not run"))
		Expect(agent.Connected(root.System())).To(MatchError("the agent is not connected to its message bus"))
		startAgent()
		Expect(agent.Running(root.System())).To(Succeed())
	})

	It("runs even if other processes are unknown", func() {
		startAgent()
		Expect(agent.Running(failAt("/proc/7/exe", unix.EIO))).To(Succeed())
	})

	It("may run if processes are unknown", func() {
		Expect(agent.Running(failAt("/proc/7/exe", unix.EIO))).To(MatchError(unix.EIO))
		Expect(agent.Running(failAt("/proc", unix.EIO))).To(MatchError(unix.EIO))
	})

	It("is not a process of another user", func() {
		Expect(agent.Running(failAt("/proc/7/exe", unix.EACCES))).To(MatchError("the agent does not run"))
	})

	DescribeTable("is connected to its message bus", func(sockets ...string) {
		startAgent(append([]string{"/dev/null"}, sockets...)...)
		Expect(agent.Connected(root.System())).To(Succeed())
	},
		Entry("with a connection to another host", "socket:[11]", "socket:[12]"),
		Entry("with a listening port", "socket:[14]"),
	)

	It("is connected to its message bus with a connection over IPv6", func() {
		startAgent("socket:[15]")
		root.Write("proc/8/net/tcp6",
			"   0: 000080FE000000000000000000000000:1 000080FE000000000000000000000001:2 01 0:0 0:0 0     0        0 15 1 0\n")
		Expect(agent.Connected(root.System())).To(Succeed())
	})

	DescribeTable("is not connected to its message bus", func(sockets ...string) {
		startAgent(append([]string{"/dev/null"}, sockets...)...)
		err := agent.Connected(root.System())
		Expect(err).To(MatchError("the agent is not connected to its message bus"))
		Expect(api.ResultOf(err, "").Code).To(Equal("agent-not-connected"))
	},
		Entry("with only a connection to monit", "socket:[11]"),
		Entry("with a connection that is not established yet", "socket:[13]"),
		Entry("with connections of other processes"),
	)

	It("is connected only according to a complete answer", func() {
		startAgent("socket:[11]", "socket:[12]")
		ExpectNoWrongAnswer(root.System(), func(sys system.System) (any, error) { return true, agent.Connected(sys) })
	})
})

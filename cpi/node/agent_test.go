package node_test

import (
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("The agent", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addProcess(7, 1, "monit")
		Expect(os.Symlink("/usr/bin/monit", root.path("proc/7/exe"))).To(Succeed())
	})
	startAgent := func(sockets ...string) {
		GinkgoHelper()
		root.addProcess(8, 1, "bosh-agent")
		Expect(os.Symlink("/var/vcap/bosh/bin/bosh-agent", root.path("proc/8/exe"))).To(Succeed())
		for i, socket := range sockets {
			Expect(os.Symlink(socket, root.path(fmt.Sprintf("proc/8/fd/%d", i)))).To(Succeed())
		}
		root.write("proc/8/net/tcp6", "")
		root.write("proc/8/net/tcp", strings.Join([]string{
			"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
			"   0: 0100007F:8E0A 0100007F:0B06 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0",
			"   1: 0200F40A:8E0A 0600000A:107E 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0",
			"   2: 0200F40A:8E0B 0600000A:107E 02 00000000:00000000 00:00000000 00000000     0        0 13 1 0",
			"   3: 00000000:1AD4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0",
			"",
		}, "\n"))
	}

	It("runs if a process executes it", func() {
		status, _ := root.run(node.AgentRunning())
		Expect(status).To(Equal(1))
		startAgent()
		Expect(root.run(node.AgentRunning())).To(BeZero())
	})

	DescribeTable("is connected to its message bus", func(expectedStatus int, sockets ...string) {
		startAgent(append([]string{"/dev/null"}, sockets...)...)
		status, output := root.run(node.AgentConnected())
		Expect(status).To(Equal(expectedStatus), output)
		if expectedStatus != 0 {
			Expect(output).To(Equal("the agent is not connected to its message bus [agent-not-connected]\n"))
		}
	},
		Entry("with a connection to another host", 0, "socket:[11]", "socket:[12]"),
		Entry("with a listening port", 0, "socket:[14]"),
		Entry("but not with only a connection to monit", 1, "socket:[11]"),
		Entry("but not with a connection that is not established yet", 1, "socket:[13]"),
		Entry("but not with connections of other processes", 1),
	)
})

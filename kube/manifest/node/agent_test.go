package node_test

import (
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("The agent", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addProcess(7, 1, "monit")
		Expect(os.Symlink("/usr/bin/monit", w.path("proc/7/exe"))).To(Succeed())
	})
	agent := func(sockets ...string) {
		GinkgoHelper()
		w.addProcess(8, 1, "bosh-agent")
		Expect(os.Symlink("/var/vcap/bosh/bin/bosh-agent", w.path("proc/8/exe"))).To(Succeed())
		for i, socket := range sockets {
			Expect(os.Symlink(socket, w.path(fmt.Sprintf("proc/8/fd/%d", i)))).To(Succeed())
		}
		w.write("proc/8/net/tcp6", "")
		w.write("proc/8/net/tcp", strings.Join([]string{
			"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
			"   0: 0100007F:8E0A 0100007F:0B06 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0",
			"   1: 0200F40A:8E0A 0600000A:107E 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0",
			"   2: 0200F40A:8E0B 0600000A:107E 02 00000000:00000000 00:00000000 00000000     0        0 13 1 0",
			"   3: 00000000:1AD4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0",
			"",
		}, "\n"))
	}

	It("runs when a process is it", func() {
		status, _ := w.run(node.AgentRunning())
		Expect(status).To(Equal(1))
		agent()
		Expect(w.run(node.AgentRunning())).To(BeZero())
	})

	DescribeTable("has reached its message bus", func(status int, sockets ...string) {
		agent(append([]string{"/dev/null"}, sockets...)...)
		got, output := w.run(node.AgentConnected())
		Expect(got).To(Equal(status), output)
		if status != 0 {
			Expect(output).To(Equal("the agent has not reached its message bus\n"))
		}
	},
		Entry("with a connection to elsewhere", 0, "socket:[11]", "socket:[12]"),
		Entry("with a port on which it waits for it", 0, "socket:[14]"),
		Entry("not with one to monit alone", 1, "socket:[11]"),
		Entry("not with one that is being made", 1, "socket:[13]"),
		Entry("not with others' connections", 1),
	)
})

package node_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node")
}

var _ = Describe("Every program", func() {
	It("has a function that returns it with its libraries, and is valid bash", func() {
		programs, err := filepath.Glob("*.sh")
		Expect(err).NotTo(HaveOccurred())
		commands := map[string][]string{
			"agent-connected.sh": node.AgentConnected(), "agent-running.sh": node.AgentRunning(),
			"attach.sh": node.Attach(), "idle.sh": node.Idle(), "prepare.sh": node.PrepareVolume(),
			"probe.sh": node.Probe(), "reboot.sh": node.Reboot(),
			"exclusivity-check.sh": node.ExclusivityCheck(), "vm-start.sh": node.VMStart(), "vm-stop.sh": node.VMStop(), "wait-attached.sh": node.WaitAttached(),
		}
		Expect(programs).To(HaveLen(len(commands)))
		for _, program := range programs {
			Expect(commands).To(HaveKey(program))
			command := commands[program]
			Expect(command[3] + ".sh").To(Equal(program))
			Expect(command[2]).NotTo(ContainSubstring("\n. lib/"))
			out, err := exec.Command("/bin/bash", "-n", "-c", command[2]).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", program, out)
		}
	})
})

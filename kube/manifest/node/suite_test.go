package node_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node")
}

var _ = Describe("Every program", func() {
	It("is there, whole, and can be read by bash", func() {
		programs, err := filepath.Glob("*.sh")
		Expect(err).NotTo(HaveOccurred())
		commands := map[string][]string{
			"agent-heard.sh": node.AgentConnected(), "agent-runs.sh": node.AgentRunning(), "await.sh": node.WaitAttached(), "copy.sh": node.Copy(),
			"hold.sh": node.Attach(), "hold-directory.sh": node.AttachDirectory(), "keep.sh": node.Idle(), "machine-start.sh": node.VMStart(),
			"machine-stop.sh": node.VMStop(), "prepare.sh": node.PrepareVolume(), "probe.sh": node.Probe(), "reboot.sh": node.Reboot(), "release.sh": node.Release(), "release-directory.sh": node.ReleaseDirectory(),
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

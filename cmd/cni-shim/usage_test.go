package main_test

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// runCommand runs the shim without CNI_COMMAND, and returns its output and exit status.
func runCommand(args ...string) (output string, status int) {
	command := exec.Command(program, args...)
	command.Env = []string{}
	out, _ := command.CombinedOutput()
	return string(out), command.ProcessState.ExitCode()
}

var _ = Describe("The usage", func() {
	for _, args := range [][]string{{"-h"}, {"-help"}, {"--help"}, {"help"}} {
		It("is printed for "+args[0], func() {
			output, status := runCommand(args...)
			Expect(status).To(BeZero())
			Expect(output).To(And(HavePrefix("cni-shim is a CNI plugin"), ContainSubstring("cni-shim install [flags]")))
		})
	}

	It("is printed for an unknown command, which fails", func() {
		output, status := runCommand("remove")
		Expect(status).To(Equal(1))
		Expect(output).To(And(HavePrefix("cni-shim: unknown command \"remove\"\n"), ContainSubstring("cni-shim install [flags]")))
	})

	It("of a command describes its flags and defaults", func() {
		output, status := runCommand("install", "-h")
		Expect(status).To(BeZero())
		Expect(output).To(And(HavePrefix("Install or update cni-shim on this node.\n"), ContainSubstring("(default: /opt/cni/bin)")))
	})
})

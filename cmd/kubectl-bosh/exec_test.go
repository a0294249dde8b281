package main_test

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("An instance", func() {
	var w world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.create(ctx, "old", address, nil)
		w.name(ctx, "old", "cf", "web", "0")
	})

	It("runs a command of kubectl bosh exec in its machine's container", func() {
		session := w.run("exec", "web/0", "--", "bash", "-c", "echo $WHERE; echo aside >&2; cat")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out.Contents()).To(BeEquivalentTo("in the machine\n"))
		Expect(session.Err.Contents()).To(BeEquivalentTo("aside\n"))
	})

	It("hands on stdin with -i", func() {
		command := exec.Command(program, "exec", "--kubeconfig", w.operator, "web/0", "-i", "--", "head", "-c", "4")
		command.Stdin = strings.NewReader("loud")
		session := start(command)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out.Contents()).To(BeEquivalentTo("loud"))
	})

	It("gives kubectl bosh ssh a terminal when it has one", func() {
		command := exec.Command("script", "--quiet", "--return", "/dev/null", "--command",
			program+" ssh --kubeconfig "+w.operator+" web/0 -- bash -c 'test -t 0 && echo $WHERE; read -r line; echo heard $line; read -r'")
		typed, err := command.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		session := start(command)
		Eventually(session.Out).Should(gbytes.Say(`in the machine\r\n`))
		_, err = typed.Write([]byte("good day\n"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(session.Out).Should(gbytes.Say(`heard good day\r\n`))
		_, err = typed.Write([]byte("\n"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(session).Should(gexec.Exit(0))
	})

	It("shows by kubectl bosh logs what its init has written", func() {
		Expect(w.prints("logs", "web/0")).To(Equal("booting\nup\n"))
		Expect(w.prints("logs", "web/0", "--tail", "1")).To(Equal("up\n"))
	})

	It("is offered by the shell's completion", func() {
		Expect(w.prints("__complete", "exec", "we")).To(HavePrefix("web/0\tcf agent-old\n"))
	})

	It("says how a command is to be given", func() {
		session := w.run("exec", "web/0", "ls")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: give one INSTANCE, and behind -- the command"))
	})
})

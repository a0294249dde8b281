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
	var env testEnv
	BeforeEach(func(ctx SpecContext) {
		env = newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "web", "0")
	})

	It("runs a command of kubectl bosh exec in the VM's container", func() {
		session := env.run("exec", "web/0", "--", "bash", "-c", "echo $WHERE; echo aside >&2; cat")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out.Contents()).To(BeEquivalentTo("in the VM\n"))
		Expect(session.Err.Contents()).To(BeEquivalentTo("aside\n"))
	})

	It("passes kubectl's flags on to kubectl, and exits with kubectl's status", func() {
		session := env.runWithKubectl("echo $*\nexit 3\n", "exec", "--namespace", env.namespace, "web/0", "--", "monit", "summary")
		Expect(session).To(gexec.Exit(3))
		Expect(string(session.Out.Contents())).To(Equal(
			"exec --kubeconfig=" + env.kubeconfig + " --namespace=" + env.namespace + " agent-old --container vm -- monit summary\n"))
	})

	It("runs a shell command of kubectl bosh ssh -c", func() {
		Expect(env.mustRun("ssh", "web/0", "-c", "echo $WHERE | tr a-z A-Z")).To(Equal("IN THE VM\n"))
		session := env.run("ssh", "web/0", "-c", "true", "--", "false")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: --command and a command after -- are mutually exclusive"))
	})

	It("passes stdin with -i", func() {
		command := exec.Command(program, "exec", "--kubeconfig", env.kubeconfig, "web/0", "-i", "--", "head", "-c", "4")
		command.Stdin = strings.NewReader("loud")
		session := startCommand(command)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out.Contents()).To(BeEquivalentTo("loud"))
	})

	It("allocates a terminal for kubectl bosh ssh if stdin is one", func() {
		command := exec.Command("script", "--quiet", "--return", "/dev/null", "--command",
			program+" ssh --kubeconfig "+env.kubeconfig+" web/0 -- bash -c 'test -t 0 && echo $WHERE; read -r line; echo heard $line; read -r'")
		stdin, err := command.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		session := startCommand(command)
		Eventually(session.Out).Should(gbytes.Say(`in the VM\r\n`))
		_, err = stdin.Write([]byte("good day\n"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(session.Out).Should(gbytes.Say(`heard good day\r\n`))
		_, err = stdin.Write([]byte("\n"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(session).Should(gexec.Exit(0))
	})

	It("shows the log of its init process by kubectl bosh logs", func() {
		Expect(env.mustRun("logs", "web/0")).To(Equal("booting\nup\n"))
		Expect(env.mustRun("logs", "web/0", "--tail", "1")).To(Equal("up\n"))
		Expect(env.mustRun("logs", "web/0", "--since", "1h")).To(BeEmpty(), "the lines are older")
	})

	It("shows the log of its BOSH agent by kubectl bosh logs --agent", func() {
		logs := func(flags ...string) string {
			GinkgoHelper()
			session := env.runWithKubectl("echo $*\n", append([]string{"logs", "web/0", "--agent"}, flags...)...)
			Expect(session).To(gexec.Exit(0))
			return strings.TrimPrefix(string(session.Out.Contents()), "exec --kubeconfig="+env.kubeconfig+" agent-old --container vm -- ")
		}
		Expect(logs()).To(Equal("tail --lines=+1 /var/vcap/bosh/log/current\n"))
		Expect(logs("--tail", "5", "-f")).To(Equal("tail --lines=5 /var/vcap/bosh/log/current -F\n"))
	})

	It("is completed by the shell", func() {
		Expect(env.mustRun("__complete", "exec", "we")).To(HavePrefix("web/0\tcf agent-old\n"))
	})

	It("shows the flags of kubectl bosh ssh before the command", func() {
		Expect(env.mustRun("ssh", "--help")).To(ContainSubstring("kubectl bosh ssh INSTANCE [flags] [-- COMMAND [ARGUMENT...]]\n"))
	})

	DescribeTable("and other commands name what they take", func(message string, arguments ...string) {
		session := env.run(arguments...)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: " + message))
	},
		Entry(nil, "logs requires one INSTANCE; `kubectl bosh ps` lists them\n", "logs"),
		Entry(nil, "describe requires one INSTANCE", "describe", "web/0", "web/1"),
		Entry(nil, `ps takes no arguments, but got "web"; select a deployment with --deployment\n`, "ps", "web"),
		Entry(nil, `down takes no arguments, but got "cf"; set the directory of the director with --dir\n`, "down", "cf"),
	)

	It("requires -- before a command", func() {
		session := env.run("exec", "web/0", "ls")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: exec requires one INSTANCE, and a command after --"))
	})
})

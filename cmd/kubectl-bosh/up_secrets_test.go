package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

const canary = "canary-5up3r-s3cr3t"

// expectNoCanary expects the output not to contain the canary.
func expectNoCanary(session *gexec.Session) {
	GinkgoHelper()
	Expect(string(session.Out.Contents()) + string(session.Err.Contents())).NotTo(ContainSubstring(canary))
}

var _ = Describe("A secret value of a variable", func() {
	var ws workspace
	BeforeEach(func() { ws = newWorkspaceWithCLI() })

	It("is not in the output of successful runs", func() {
		session := ws.up("--var", "password="+canary)
		Expect(session).To(gexec.Exit(0))
		expectNoCanary(session)
		Expect(ws.vars()).To(HaveKeyWithValue("password", canary), "up writes it")
		for _, args := range [][]string{
			{"up", "--dry-run", "--var", "password=" + canary + "-2"},
			{"up", "--bosh", "./create-env", "--var", "password=" + canary + "-3"},
			{"up", "--dry-run", "--var", "keys={private: " + canary + ", list: [" + canary + "]}"},
			{"up", "--dry-run", "--release", "https://user:" + canary + "@example.com/cpi.tgz", "--release-sha1", sha1Sum},
			{"up", "--dry-run"},
		} {
			session := ws.run("y\n", args...)
			Expect(session).To(gexec.Exit(0))
			expectNoCanary(session)
		}
	})

	It("is not in the output of failed runs", func() {
		Expect(ws.up("--var", "password="+canary)).To(gexec.Exit(0))
		ws.write("fails", "")
		for _, command := range [][]string{{"up"}, {"down"}} {
			for _, input := range []string{"y\n", "n\n"} {
				session := ws.run(input, append(command, "--bosh", "./create-env")...)
				Expect(session).NotTo(gexec.Exit(0))
				expectNoCanary(session)
			}
		}
	})

	DescribeTable("is not in errors about flags", func(message string, args ...string) {
		for _, arguments := range [][]string{append([]string{"up", "--bosh-deployment", "bosh-deployment"}, args...), append([]string{"up"}, args...)} {
			session := ws.run("", append(arguments, "--dry-run")...)
			Expect(session).To(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(ContainSubstring(message))
			expectNoCanary(session)
		}
	},
		Entry("without a name", "--var number 2 is not in the form name=value", "--var", "mine=1", "--var", "="+canary),
		Entry("without a name and an equals sign", "--var number 1 is not in the form name=value", "--var", canary),
		Entry("that is a YAML alias", "--var password: the value is not valid YAML", "--var", "password=*"+canary),
		Entry("that is a YAML key", "--var password: the value is not valid YAML", "--var", "password={["+canary+"]: 1}"),
		Entry("that is a separate argument", "unexpected arguments (1)", "--var", "mine=1", "password="+canary),
		Entry("of a misspelled flag", "unknown flag: --vra", "--vra=password="+canary),
	)

	It("is not in errors about vars.yml", func() {
		Expect(ws.up()).To(gexec.Exit(0))
		for _, content := range []string{"a: 1\npassword: *" + canary + "\n", "password: {[" + canary + "]: 1}\n", canary + "\n", "- " + canary + "\n", "password: \"" + canary + "\n"} {
			ws.write("kubernetes/vars.yml", content)
			session := ws.run("", "up", "--dry-run")
			Expect(session).To(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(ContainSubstring("cannot parse kubernetes/vars.yml"))
			expectNoCanary(session)
		}
	})

	It("is only in files that only their owner can read", func() {
		oldMask := syscall.Umask(0)
		DeferCleanup(func() { syscall.Umask(oldMask) })
		Expect(os.Mkdir(ws.path("kubernetes"), 0o755)).To(Succeed())
		Expect(ws.up("--var", "password="+canary)).To(gexec.Exit(0))
		Expect(ws.run("y\n", "up", "--bosh", "./create-env", "--var", "other="+canary)).To(gexec.Exit(0))
		var filesWithCanary []string
		Expect(filepath.WalkDir(ws.path("kubernetes"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(content), canary) {
				return err
			}
			filesWithCanary = append(filesWithCanary, filepath.Base(path))
			info, err := entry.Info()
			Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), path)
			return err
		})).To(Succeed())
		Expect(filesWithCanary).To(ConsistOf("vars.yml"))
	})

	It("is not in a file that others can read because a previous run was interrupted", func() {
		ws.planOutput()
		Expect(os.WriteFile(ws.path("kubernetes/vars.yml.new"), nil, 0o644)).To(Succeed())
		Expect(os.Chmod(ws.path("kubernetes/vars.yml.new"), 0o644)).To(Succeed())
		Expect(ws.run("", "up", "--dry-run", "--var", "password="+canary)).To(gexec.Exit(0))
		info, err := os.Stat(ws.path("kubernetes/vars.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})
})

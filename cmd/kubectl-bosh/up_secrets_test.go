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

// quiet expects that the program has not printed the canary.
func quiet(session *gexec.Session) {
	GinkgoHelper()
	Expect(string(session.Out.Contents()) + string(session.Err.Contents())).NotTo(ContainSubstring(canary))
}

var _ = Describe("The value of a variable that is secret", func() {
	var g ground
	BeforeEach(func() { g = newDoer() })

	It("is in the output of no run that takes it", func() {
		session := g.up("--var", "password="+canary)
		Expect(session).To(gexec.Exit(0))
		quiet(session)
		Expect(g.vars()).To(HaveKeyWithValue("password", canary), "it is taken")
		for _, args := range [][]string{
			{"up", "--dry-run", "--var", "password=" + canary + "-2"},
			{"up", "--bosh", "./create-env", "--var", "password=" + canary + "-3"},
			{"up", "--dry-run", "--var", "keys={private: " + canary + ", list: [" + canary + "]}"},
			{"up", "--dry-run", "--release", "https://user:" + canary + "@example.com/cpi.tgz", "--release-sha1", "1"},
			{"up", "--dry-run"},
		} {
			session := g.run("y\n", args...)
			Expect(session).To(gexec.Exit(0))
			quiet(session)
		}
	})

	It("is in the output of no run that is stopped", func() {
		Expect(g.up("--var", "password="+canary)).To(gexec.Exit(0))
		g.write("fails", "")
		for _, command := range [][]string{{"up"}, {"down"}} {
			for _, answer := range []string{"y\n", "n\n"} {
				session := g.run(answer, append(command, "--bosh", "./create-env")...)
				Expect(session).NotTo(gexec.Exit(0))
				quiet(session)
			}
		}
	})

	DescribeTable("is in no error about the flags", func(message string, args ...string) {
		for _, arguments := range [][]string{append(append([]string{}, first...), args...), append([]string{"up"}, args...)} {
			session := g.run("", append(arguments, "--dry-run")...)
			Expect(session).To(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(ContainSubstring(message))
			quiet(session)
		}
	},
		Entry("without a name", "--var number 2 is not NAME=VALUE", "--var", "mine=1", "--var", "="+canary),
		Entry("without a name and the sign", "--var number 1 is not NAME=VALUE", "--var", canary),
		Entry("that a parser takes for an alias", "--var password: the value is not valid YAML", "--var", "password=*"+canary),
		Entry("that a parser takes for a key", "--var password: the value is not valid YAML", "--var", "password={["+canary+"]: 1}"),
		Entry("that is an argument of its own", "1 arguments do not belong to a flag", "--var", "mine=1", "password="+canary),
		Entry("of a flag that is misspelled", "unknown flag: --vra", "--vra=password="+canary),
	)

	It("is in no error about vars.yml", func() {
		Expect(g.up()).To(gexec.Exit(0))
		for _, content := range []string{"a: 1\npassword: *" + canary + "\n", "password: {[" + canary + "]: 1}\n", canary + "\n", "- " + canary + "\n", "password: \"" + canary + "\n"} {
			g.write("kubernetes/vars.yml", content)
			session := g.run("", "up", "--dry-run")
			Expect(session).To(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(ContainSubstring("cannot parse kubernetes/vars.yml"))
			quiet(session)
		}
	})

	It("is in no file that others than its owner can read", func() {
		former := syscall.Umask(0)
		DeferCleanup(func() { syscall.Umask(former) })
		Expect(os.Mkdir(g.path("kubernetes"), 0o755)).To(Succeed())
		Expect(g.up("--var", "password="+canary)).To(gexec.Exit(0))
		Expect(g.run("y\n", "up", "--bosh", "./create-env", "--var", "other="+canary)).To(gexec.Exit(0))
		var holding []string
		Expect(filepath.WalkDir(g.path("kubernetes"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(content), canary) {
				return err
			}
			holding = append(holding, filepath.Base(path))
			info, err := entry.Info()
			Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), path)
			return err
		})).To(Succeed())
		Expect(holding).To(ConsistOf("vars.yml"))
	})

	It("is in no file that others can read because a former run was cut short", func() {
		g.plans()
		Expect(os.WriteFile(g.path("kubernetes/vars.yml.new"), nil, 0o644)).To(Succeed())
		Expect(os.Chmod(g.path("kubernetes/vars.yml.new"), 0o644)).To(Succeed())
		Expect(g.run("", "up", "--dry-run", "--var", "password="+canary)).To(gexec.Exit(0))
		info, err := os.Stat(g.path("kubernetes/vars.yml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})
})

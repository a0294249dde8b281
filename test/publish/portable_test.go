package publish

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// portableScripts are the scripts that also run on macOS, with bash 3.2 and BSD tools, and the scripts that they source or run.
var portableScripts = []string{
	"release", "create-release", "publish", "build-kubectl-bosh", "build-stemcell", "build-cni-shim", "build-node-image", "build-tools", "environment",
}

// nonPortablePatterns match features that bash 3.2 or BSD tools do not have.
var nonPortablePatterns = map[string]*regexp.Regexp{
	"bash 4":             regexp.MustCompile(`\b(mapfile|readarray|coproc)\b|\b(declare|local|typeset) -[Agn]|\bwait -n|\$\{\w+(\[[^]]*\])?(,|\^|@)|\|&|&>>`),
	"realpath, readlink": regexp.MustCompile(`\b(realpath|readlink -[fem])\b`),
	"sed":                regexp.MustCompile(`\bsed (-\w+ )*(-i|-r|--)|\bsed .*\\[tn+?|]`),
	"tar":                regexp.MustCompile(`\btar\b.*--(sort|mtime|owner|group|numeric-owner|mode|wildcards|create|directory|transform)\b`),
	"cp, mv, ...":        regexp.MustCompile(`\b(cp|mv|rm|mkdir|ln) (-\w+ )*(--|-a\b|-T\b|-D\b|-\w*t\b)`),
	"find, xargs":        regexp.MustCompile(`-printf\b|-delete\b|-readable\b|-executable\b|\bxargs (-\w+ )*(-r\b|--)`),
	"grep, sort, head":   regexp.MustCompile(`\bgrep -\w*P|\bsort -\w*[Vz]|\bhead -n -|\bhead -c \d+[kM]|\bdate (-d|--)|\bstat (-c|--)|\bmktemp (--|-t)`),
}

var _ = Describe("A script that also runs on macOS", func() {
	for _, name := range portableScripts {
		It("uses only portable features: "+name, func() {
			script, err := os.ReadFile(filepath.Join(root, "scripts", name))
			Expect(err).NotTo(HaveOccurred())
			for line := range strings.Lines(string(script)) {
				code, _, _ := strings.Cut(" "+line, " #")
				for tools, pattern := range nonPortablePatterns {
					Expect(code).NotTo(MatchRegexp(pattern.String()), "%s: macOS does not support this feature of %s", name, tools)
				}
			}
		})
	}
})

// portableToolsDir returns a directory for PATH that contains busybox's tools instead of GNU's, and the other programs that the scripts
// require.
func portableToolsDir() string {
	GinkgoHelper()
	busybox, err := exec.LookPath("busybox")
	Expect(err).NotTo(HaveOccurred(), "scripts/test installs it")
	dir := GinkgoT().TempDir()
	tools := "awk basename cat chmod cp cut dirname env find grep head ln ls mkdir mktemp mv printf rm sed sort tail tar xargs"
	for name := range strings.FieldsSeq(tools) {
		Expect(os.Symlink(busybox, filepath.Join(dir, name))).To(Succeed())
	}
	for name := range strings.FieldsSeq("bash git go bosh") {
		path, err := exec.LookPath(name)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(path, filepath.Join(dir, name))).To(Succeed())
	}
	return dir
}

var _ = Describe("A script that uses a program of a Debian package", func() {
	It("finds a program in /usr/sbin if the cache is empty", func(ctx context.Context) {
		const script = `. scripts/environment
			apt-get() { touch nftables_1.deb; }
			dpkg-deb() { mkdir -p usr/sbin && printf '#!/bin/sh\n' >usr/sbin/nft && chmod +x usr/sbin/nft; }
			debian_program ../sbin/nft nftables`
		command := exec.CommandContext(ctx, "bash", "-c", script)
		command.Dir, command.Env = root, append(os.Environ(), "BOSH_KUBERNETES_CPI_CACHE="+GinkgoT().TempDir())
		Expect(command.Run()).To(Succeed())
	})
})

var _ = Describe("A script that builds tools", func() {
	It("builds a tool if the cache is empty", func(ctx context.Context) {
		cache, programs := GinkgoT().TempDir(), GinkgoT().TempDir()
		const compiler = "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" != -o ] || touch \"$2\"; shift; done\n"
		Expect(os.WriteFile(filepath.Join(programs, "go"), []byte(compiler), 0o700)).To(Succeed()) //nolint:gosec // a program
		command := exec.CommandContext(ctx, root+"/scripts/build-tools", "nats-server")
		command.Env = append(os.Environ(), "BOSH_KUBERNETES_CPI_CACHE="+cache, "PATH="+programs+":"+os.Getenv("PATH"))
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		Expect(filepath.Glob(cache + "/tools/nats-server-v*/bin/nats-server")).To(HaveLen(1))
	})
})

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestBOSHNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cmd/bosh-node")
}

var _ = Describe("bosh-node", func() {
	var (
		root     string
		faults   map[string]error // by system call
		calls    []string
		out, log bytes.Buffer
	)
	BeforeEach(func() {
		root, calls, faults = GinkgoT().TempDir(), nil, map[string]error{}
		out.Reset()
		log.Reset()
		for _, directory := range []string{"dev", "devices", "proc/self"} {
			Expect(os.MkdirAll(filepath.Join(root, directory), 0o755)).To(Succeed())
		}
		Expect(os.WriteFile(filepath.Join(root, terminationLog), nil, 0o600)).To(Succeed())
	})
	// run runs bosh-node in root, which has no disk and no process, and records its system calls.
	run := func(arguments ...string) int {
		sys := system.System{Root: root, Before: func(call, path string) error {
			if path != terminationLog {
				calls = append(calls, call+" "+path)
			}
			return faults[call+" "+path]
		}}
		return program{sys: sys, stdout: &out, stderr: &log}.run(arguments)
	}
	failOn := func(call string, errno unix.Errno) {
		name, path, _ := strings.Cut(call, " ")
		faults[call] = &os.PathError{Op: name, Path: path, Err: errno}
	}
	message := func() string {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join(root, terminationLog))
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	flush := append([]string{api.InImage}, api.Flush()...)
	check := append([]string{api.InImage}, api.Disk{CID: "disk-1", VM: "bosh/agent-1"}.Command(api.Check)...)

	It("prints the version of the contract", func() {
		Expect(run(api.InVolume, api.PrintVersion)).To(BeZero())
		Expect(out.String()).To(Equal(fmt.Sprintln(api.Version)))
		Expect(calls).To(BeEmpty())
	})

	DescribeTable("fails without an effect for", func(command, problem string) {
		Expect(run(append([]string{api.InImage}, strings.Fields(command)...)...)).To(Equal(api.ExitUsage))
		Expect(log.String()).To(And(HavePrefix("bosh-node: "), ContainSubstring(problem)))
		Expect(out.String()).To(BeEmpty())
		Expect(message()).To(BeEmpty())
		Expect(calls).To(BeEmpty())
	},
		Entry("no command", "", `unknown command ""`),
		Entry("half a command", "disk", `unknown command "disk"`),
		Entry("an unknown command", "disk destroy --cid disk-1", `unknown command "disk destroy"`),
		Entry("an argument of version", "version 1", `unknown command "version 1"`),
		Entry("an unknown argument", "agent running now", `unknown argument "now"`),
		Entry("an unknown option", "disk check --cid disk-1 --vm bosh/agent-1 --force", "-force"),
		Entry("an option of another command", "disk check --cid disk-1 --vm bosh/agent-1 --size-mib 1", "-size-mib"),
		Entry("a disk outside its directory", "disk check --cid ../disk-1 --vm bosh/agent-1", "not the CID"),
		Entry("a missing disk", "disk attach --vm bosh/agent-1 --size-mib 1 --filesystem ext4", "not the CID"),
		Entry("a missing size", "disk attach --cid disk-1 --vm bosh/agent-1 --filesystem ext4", "not positive"),
		Entry("an unknown filesystem", "disk prepare --cid disk-1 --vm bosh/agent-1 --size-mib 1 --filesystem ntfs", "not ext4 or xfs"),
		Entry("a missing container", "vm reboot --vm bosh/agent-1", "--container"),
		Entry("a negative time", "vm stop --serve-seconds -1", "negative"),
		Entry("an argument of the start", "vm start /sbin/init", `unknown argument "/sbin/init"`),
		Entry("a probe without a port", "node probe --service web", "NAME:PORT"),
		Entry("an argument of a flush", "node flush /", "unknown argument"),
	)

	It("writes the result of a command that failed to the termination message, and to the log", func() {
		failOn("sync /", unix.EIO)
		Expect(run(flush...)).To(Equal(api.ExitFailed))
		result, ok := api.ParseResult(message())
		Expect(ok).To(BeTrue(), message())
		Expect(result).To(And(HaveField("Version", api.Version), HaveField("Code", "disk-flush-failed"), HaveField("Message", ContainSubstring("input/output error"))))
		Expect(log.String()).To(Equal("bosh-node: " + result.Message + "\n"))
	})

	It("has an own exit status for a check of a disk that is not published yet", func() {
		Expect(run(check...)).To(Equal(api.ExitNotPublished))
		Expect(message()).To(ContainSubstring("disk-not-published"))
	})

	It("replaces an earlier message", func() {
		Expect(os.WriteFile(filepath.Join(root, terminationLog), bytes.Repeat([]byte("x"), 5000), 0o600)).To(Succeed())
		failOn("sync /", unix.EIO)
		run(flush...)
		Expect(json.Valid([]byte(message()))).To(BeTrue(), message())
	})

	It("writes no result for a command next to the program of the container", func() {
		Expect(run(api.InVolume, "agent", "running")).To(Equal(api.ExitFailed))
		Expect(log.String()).To(ContainSubstring("the agent does not run"))
		Expect(message()).To(BeEmpty())
	})

	It("reports in its log that it cannot write its result", func() {
		failOn("sync /", unix.EIO)
		failOn("write "+terminationLog, unix.ENOSPC)
		Expect(run(flush...)).To(Equal(api.ExitFailed))
		Expect(log.String()).To(And(ContainSubstring("cannot report the error: "), ContainSubstring("no space left"), ContainSubstring("input/output error")))
	})

	DescribeTable("is another program by the name of its link:", func(name, lastCall string) {
		failOn(lastCall, unix.EPERM)
		DeferCleanup(func() { signal.Reset(unix.SIGHUP, unix.SIGTERM) }) // the programs that restart a VM ignore signals
		Expect(os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), nil, 0o600)).To(Succeed())
		Expect(run(name, "disk", "check")).To(Equal(api.ExitFailed))
		Expect(calls[len(calls)-1]).To(Equal(lastCall))
		Expect(log.String()).To(ContainSubstring("operation not permitted"))
		Expect(message()).To(BeEmpty())
	},
		Entry(nil, "/usr/local/sbin/mount", "execve /bin/mount"),
		Entry(nil, "umount", "execve /bin/umount"),
		Entry(nil, "/sbin/reboot", "start /proc/self/exe"),
		Entry(nil, "halt", "start /proc/self/exe"),
		Entry(nil, "poweroff", "start /proc/self/exe"),
		Entry(nil, "shutdown", "start /proc/self/exe"),
	)
})

package node_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A reboot", func() {
	var w world
	BeforeEach(func() { w = newWorld() })

	env := []string{"VM=bosh/agent-a", "CONTAINER=c0ffee"}

	// lives starts a process that writes down which signals it gets, ends on those of the last argument, and
	// is in the pretended /proc for as long as it lives.
	lives := func(name, pids, endsOn string) int {
		GinkgoHelper()
		process := exec.Command("env", asInContainer([]string{"/bin/bash", "-c", `
			name=$0 signals=$1 proc=$2 ends_on=$3
			told() {
				echo "$name $1" >>"$signals"
				[[ $ends_on != *"$1"* ]] || { rm -r "$proc/$$"; exit; }
			}
			for signal in TERM HUP INT RTMIN+5; do trap "told $signal" "$signal"; done
			exec {quiet}<> <(:)
			until [[ -e $proc/$$/cgroup ]]; do read -r -t 0.01 -u "$quiet"; done
			echo
			while :; do read -r -t 0.1 -u "$quiet"; done`,
			name, filepath.Join(w.known, "signals"), w.path("proc"), endsOn})...)
		ready, err := process.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(process.Start()).To(Succeed())
		DeferCleanup(func() {
			_ = process.Process.Kill()
			_ = process.Wait()
		})
		number := process.Process.Pid
		folder := fmt.Sprintf("proc/%d/", number)
		w.process(number, 1, name, inMachineA)
		w.write(folder+"status", fmt.Sprintf("PPid:\t1\nNSpid:\t%d\t%s\n", number, pids))
		w.write(folder+"cmdline", "program\x00")
		Expect(os.Symlink("pid:["+strings.Fields(pids)[0]+"]", w.path(folder+"ns/pid"))).To(Succeed())
		w.write(folder+"cgroup", "0::/kubepods/c0ffee\n")
		_, err = ready.Read(make([]byte, 1))
		Expect(err).NotTo(HaveOccurred())
		return number
	}
	// sameNamespace puts processes into the PID namespace of the first.
	sameNamespace := func(numbers ...int) {
		GinkgoHelper()
		for _, number := range numbers {
			link := w.path(fmt.Sprintf("proc/%d/ns/pid", number))
			Expect(os.Remove(link)).To(Succeed())
			Expect(os.Symlink("pid:[machine]", link)).To(Succeed())
		}
	}
	signals := func() []string {
		content, _ := os.ReadFile(filepath.Join(w.known, "signals"))
		return strings.Split(string(bytes.TrimSpace(content)), "\n")
	}
	reboot := func(more ...string) (int, string) {
		GinkgoHelper()
		return w.run(node.Reboot(), append(append([]string{"SERVICES_TIME=1", "INIT_TIME=1"}, env...), more...)...)
	}

	It("has runit's services and the jobs end before the init program, and leaves others alone", func() {
		init := lives("runsvdir", "1", "HUP")
		job := lives("job", "17", "TERM")
		supervisor := lives("runsv", "18", "TERM")
		logger := lives("svlogd", "19", "TERM")
		kernel := lives("kernel's", "20", "TERM")
		w.write(fmt.Sprintf("proc/%d/cmdline", kernel), "")
		sameNamespace(init, job, supervisor, logger, kernel)
		lives("in a container of it", "21 1", "TERM")
		Expect(reboot("SERVICES_TIME=100", "INIT_TIME=300")).To(BeZero())
		Expect(w.calls()).To(Equal([]string{fmt.Sprintf("chroot /proc/%d/root /bin/sh -c sv -w 10 force-stop /etc/service/*", init)}))
		Expect(signals()).To(Equal([]string{"job TERM", "runsvdir HUP"}))
	})

	It("does not wait for ever for jobs that do not end", func() {
		init := lives("runsvdir", "1", "HUP")
		sameNamespace(init, lives("job", "17", ""))
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Eventually(signals).WithTimeout(patience).Should(ConsistOf("job TERM", "runsvdir HUP"))
	})

	DescribeTable("asks systemd to reboot", func(name string) {
		lives(name, "1", "RTMIN+5")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(signals()).To(Equal([]string{name + " RTMIN+5"}))
		Expect(w.calls()).To(HaveExactElements(""))
	},
		Entry("by its name", "systemd"),
		Entry("by the name of its link", "init"),
	)

	// killed reports whether a process that removes nothing from /proc was killed: by looking at its state.
	killed := func(number int) bool {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(number, &status, 0, nil)
		return err == nil && status.Signaled() && status.Signal() == syscall.SIGKILL
	}

	It("kills the start script, which has nothing to end", func() {
		init := lives("bash", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(killed(init)).To(BeTrue())
		Expect(signals()).To(HaveExactElements(""))
	})

	It("kills an init program that does not end", func() {
		init := lives("systemd", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(killed(init)).To(BeTrue())
	})

	It("takes the PID 1 of the machine, and not that of a PID namespace within", func() {
		lives("systemd", "17 1", "RTMIN+5")
		lives("systemd", "1", "RTMIN+5 TERM")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(signals()).To(HaveLen(1))
		Expect(filepath.Glob(w.path("proc/[0-9]*"))).To(HaveLen(1))
		left, err := filepath.Glob(w.path("proc/[0-9]*/status"))
		Expect(err).NotTo(HaveOccurred())
		status, err := os.ReadFile(left[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(status)).To(HaveSuffix("17 1\n"))
	})

	It("leaves a container alone that is not the one of the request", func() {
		lives("systemd", "1", "RTMIN+5")
		status, said := reboot("CONTAINER=another")
		Expect(status).To(BeZero())
		Expect(said).To(Equal("the machine has restarted since the request\n"))
		Expect(signals()).To(HaveExactElements(""))
	})

	It("fails where the machine does not run", func() {
		w.process(300, 1, "systemd", inMachineB)
		status, said := reboot()
		Expect(status).To(Equal(1))
		Expect(said).To(Equal("the machine's init program does not run on this node\n"))
	})
})

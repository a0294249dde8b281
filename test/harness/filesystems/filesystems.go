//go:build linux

// Package filesystems helps to test bosh-node with real filesystems.
package filesystems

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// Isolate executes the program of the test again, in a mount namespace of its own, if it has the permissions of root. Otherwise, processes
// that other tests start in new mount namespaces at the same time would have copies of the mounts, and keep the devices in use.
func Isolate() {
	const isolated = "TEST_IN_MOUNT_NAMESPACE"
	if os.Geteuid() != 0 || os.Getenv(isolated) != "" {
		return
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		panic(err)
	}
	arguments := append([]string{unshare, "--mount", "--propagation", "private", "--"}, os.Args...)
	panic(syscall.Exec(unshare, arguments, append(os.Environ(), isolated+"=yes")))
}

// NeedsRoot skips a spec without the permissions of root.
func NeedsRoot() {
	ginkgo.GinkgoHelper()
	if os.Geteuid() != 0 {
		ginkgo.Skip("needs root: mounts filesystems on loop devices")
	}
}

// Kills returns the number of kills at random moments in a test: 10, or the number in the variable KILLS.
func Kills() int {
	ginkgo.GinkgoHelper()
	text := os.Getenv("KILLS")
	if text == "" {
		return 10
	}
	number, err := strconv.Atoi(text)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return number
}

// Calls returns the number of the first system call at which a test injects a kill or an error, and the distance to the next one: every
// fourth call, selected by the seed, or every call if KILLS is set.
func Calls() (first, stride int) {
	if os.Getenv("KILLS") != "" {
		return 1, 1
	}
	stride = 4
	return 1 + int(ginkgo.GinkgoRandomSeed())%stride, stride
}

// Run runs a program that must succeed, and returns its output.
func Run(name string, arguments ...string) string {
	ginkgo.GinkgoHelper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "%s %q: %s", name, arguments, out)
	return string(out)
}

// FakeProgram puts a script before the programs of the system.
func FakeProgram(name, script string) {
	ginkgo.GinkgoHelper()
	directory := ginkgo.GinkgoT().TempDir()
	gomega.Expect(os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script), 0o700)).To(gomega.Succeed())
	ginkgo.GinkgoT().Setenv("PATH", directory+":"+os.Getenv("PATH"))
}

// WhileMounted calls do while the filesystem of the device is mounted.
func WhileMounted(sys system.System, device string, do func(directory string)) {
	ginkgo.GinkgoHelper()
	directory := filepath.Join(sys.Root, "mounted")
	gomega.Expect(os.MkdirAll(directory, 0o700)).To(gomega.Succeed())
	Run("mount", sys.Path(device), directory)
	defer Run("umount", directory)
	do(directory)
}

// Check checks the filesystem of a device that is not mounted.
func Check(sys system.System, device, filesystem string) {
	ginkgo.GinkgoHelper()
	if filesystem == "xfs" {
		Run("xfs_repair", "-n", sys.Path(device))
	} else {
		Run("e2fsck", "-f", "-n", sys.Path(device))
	}
}

// ExpectValid checks the filesystem of the device, and that the kernel mounts it.
func ExpectValid(sys system.System, device, filesystem string) {
	ginkgo.GinkgoHelper()
	Check(sys, device, filesystem)
	WhileMounted(sys, device, func(directory string) {
		gomega.Expect(os.WriteFile(directory+"/test", nil, 0o600)).To(gomega.Succeed())
	})
}

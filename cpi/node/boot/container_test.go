//go:build linux

package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// newStemcellRoot returns the root of a new container with a stemcell image. The VM's Secret contains default settings.
func newStemcellRoot() fakeRoot {
	GinkgoHelper()
	root := newFakeRoot()
	root.remove("proc/self")
	for _, directory := range []string{
		"root", "run", "sys", "dev/bosh", "bosh/ephemeral-disk", "var/vcap/store", "var/vcap/data/sys/run/monit", "tmp", "opt", "kubelet",
	} {
		root.mkdir(directory)
	}
	for name, content := range map[string]string{
		"resolv.conf": "nameserver 10.96.0.10\nsearch bosh.svc cluster.local\n", "hosts": "10.0.0.1 agent-a\n", "hostname": "agent-a\n",
	} {
		root.write("etc/"+name, "of the stemcell")
		root.write("kubelet/"+name, content)
	}
	root.write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
	root.write("etc/podinfo/labels", "of the stemcell")
	root.write("kubelet/labels", "of the Pod")
	root.write("var/vcap/bosh/agent.json", `{"Platform": {"Linux": {"ServiceManager": "systemd"}}}`)
	root.write("usr/local/share/ca-certificates/own.crt", "own\n")
	root.write("bin/update-ca-certificates", "#!/bin/bash\necho update-ca-certificates >>\"$BOOT_TEST_ROOT/calls\"\n")
	for _, program := range []string{"cat", "cp", "mount"} {
		path, err := exec.LookPath(program)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(path, root.path("bin/"+program))).To(Succeed())
	}
	root.setInit("")
	files, err := agentsettings.Options{Mbus: "nats://nats:pw@10.0.0.6:4222"}.Files(agentsettings.VM{AgentID: "a"})
	Expect(err).NotTo(HaveOccurred())
	for name, content := range files {
		root.write("bosh/settings/"+name, string(content))
	}
	return root
}

// setInit sets the script of the init program, which records its start.
func (r fakeRoot) setInit(script string) {
	GinkgoHelper()
	r.write("usr/sbin/runsvdir-start", "#!/bin/bash\nroot=$BOOT_TEST_ROOT\necho \"init in $container\" >>\"$root/calls\"\n"+script)
}

// container is a started container.
type container struct {
	root    fakeRoot
	command *exec.Cmd
	output  *output
	exited  chan error
}

// start starts a container: the test binary as PID 1 in namespaces of mounts and processes. Without root, they are in a user namespace.
// setup is a script that mounts the container's volumes. The variable RUNTIME is a script that runs before the test binary.
func (r fakeRoot) start(setup string, variables ...string) *container {
	GinkgoHelper()
	executable, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	c := &container{root: r, output: &output{}, exited: make(chan error, 1), command: exec.Command(executable)}
	if index := slices.IndexFunc(variables, func(variable string) bool { return strings.HasPrefix(variable, "RUNTIME=") }); index >= 0 {
		c.command = exec.Command("/bin/bash", "-c", `eval "$RUNTIME"; exec "$0"`, executable)
	}
	script, found := strings.CutPrefix(setup, volumes)
	if found {
		variables = append(variables, "VOLUMES=true")
	}
	r.remove("setup") // of an earlier start
	if script != "" {
		r.write("setup", "#!/bin/bash -e\nroot=$BOOT_TEST_ROOT\n"+script)
	}
	c.command.Env = append([]string{
		"PATH=/bin", "HOST_PATH=" + os.Getenv("PATH"), "BOOT_TEST_ROOT=" + string(r), "LC_ALL=C",
		"GOCOVERDIR=" + GinkgoT().TempDir(), // otherwise, a process with coverage writes a warning
	}, variables...)
	c.command.Stdout, c.command.Stderr = c.output, c.output
	c.command.WaitDelay = 2 * time.Minute
	c.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		c.command.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	Expect(c.command.Start()).To(Succeed())
	go func() { c.exited <- c.command.Wait() }()
	DeferCleanup(func() { _ = c.command.Process.Kill() })
	return c
}

// volumes begins a setup with the mounts of a kubelet: see mountVolumes.
const volumes = "# volumes\n"

// output is what a container wrote so far.
type output struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buffer.Write(text)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buffer.String()
}

// wait waits until the container exits.
func (c *container) wait() error {
	GinkgoHelper()
	var err error
	Eventually(c.exited).Should(Receive(&err), c.output.String)
	return err
}

// expectBoot starts a container with the volumes of a VM, and waits until its init program exits without an error.
func (r fakeRoot) expectBoot(variables ...string) (output string) {
	GinkgoHelper()
	c := r.start(volumes, variables...)
	Expect(c.wait()).To(Succeed(), c.output.String)
	return openFilesWarning(c.output.String())
}

// openFilesWarning returns the output without the warning about open files, which depends on the host.
func openFilesWarning(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if !strings.Contains(line, "vm-start: programs can open ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// calls returns the system calls that change mounts and namespaces, and the calls of programs.
func (r fakeRoot) calls() []string {
	GinkgoHelper()
	return strings.Split(strings.TrimSuffix(r.read("calls"), "\n"), "\n")
}

// restart removes what does not outlive a container. The image and the ephemeral disk stay.
func (r fakeRoot) restart() {
	GinkgoHelper()
	r.remove("calls")
	r.remove("bosh/nested")
}

// runAsBoshNode runs a command of bosh-node.
func runAsBoshNode(directory string) error {
	sys := system.System{Root: directory}
	if len(os.Args) > 2 && os.Args[2] == "lxcfs-mounts" {
		sys.Before = (&faults{trace: io.Discard}).before
		return LXCFSMounts(context.Background(), sys, time.Millisecond, os.Args[3:])
	}
	if err := mountVolumes(directory); err != nil {
		return err
	}
	if encoded := os.Getenv("FAIL_EACH_CALL"); encoded != "" {
		var mode failureMode
		if err := json.Unmarshal([]byte(encoded), &mode); err != nil {
			return err
		}
		return writeBoots(sys, mode)
	}
	trace, err := os.OpenFile(filepath.Join(directory, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sys.Before = (&faults{trace: trace}).before
	return Start(sys, os.Getenv("REQUESTED_INIT"), os.Environ())
}

// mountVolumes mounts what a container runtime and a kubelet mount, and runs the script of the test.
func mountVolumes(directory string) error {
	_ = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	binds := [][2]string{{directory, ""}, {"/proc", "proc"}}
	if os.Getenv("VOLUMES") != "" {
		for _, name := range []string{"resolv.conf", "hosts", "hostname"} {
			binds = append(binds, [2]string{filepath.Join(directory, "kubelet", name), "etc/" + name})
		}
		binds = append(binds, [2]string{filepath.Join(directory, "kubelet/labels"), "etc/podinfo/labels"})
	}
	for _, bind := range binds {
		if err := unix.Mount(bind[0], filepath.Join(directory, bind[1]), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", bind[1], err)
		}
	}
	if os.Getenv("VOLUMES") != "" {
		if err := unix.Mount("tmpfs", filepath.Join(directory, "dev/bosh"), "tmpfs", unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("mount the directory of devices: %w", err)
		}
	}
	setup := exec.Command(filepath.Join(directory, "setup"))
	setup.Env = append(os.Environ(), "PATH="+os.Getenv("HOST_PATH"))
	if output, err := setup.CombinedOutput(); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("setup: %w: %s", err, output)
	}
	return nil
}

// faults records system calls, and lets those that are FAIL_CALLS fail with FAIL_ERRNO.
type faults struct{ trace io.Writer }

func (f *faults) before(call, path string) error {
	path = strings.TrimPrefix(path, os.Getenv("BOOT_TEST_ROOT"))
	if os.Getenv("FAIL_CALLS") == call+" "+path {
		number, err := strconv.Atoi(os.Getenv("FAIL_ERRNO"))
		if err != nil {
			return err
		}
		return unix.Errno(number)
	}
	switch call {
	case "mount", "umount", "unshare", "syncfs", "fsync", "exec", "start", "fallocate":
		fmt.Fprintln(f.trace, call, path)
	}
	return nil
}

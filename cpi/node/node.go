// Package node contains the programs that containers run on the cluster's nodes: as PID 1 of a VM, in attachment Pods, and in helper Pods.
//
// They are bash programs, because they run in stemcell images, which have bash and the required tools for disks. The project therefore
// needs no image of its own, which operators would have to mirror. The directory lib contains libraries. A line that sources a library is
// replaced by the library's text. The package does not depend on Kubernetes.
package node

import (
	"embed"
	"strings"
)

//go:embed *.sh lib/*.sh
var files embed.FS

// command returns the command of a container that runs the program of this name.
func command(name string) []string {
	return []string{"/bin/bash", "-c", program(name), name}
}

// program returns the text of the program, including its libraries. Because etcd stores it in each Pod, it has no comments, empty lines and
// indentation. So the files must not have multi-line strings or here-documents in which these matter.
func program(name string) string {
	var text strings.Builder
	for line := range strings.Lines(read(name + ".sh")) {
		if library, ok := strings.CutPrefix(line, ". lib/"); ok {
			line = read("lib/" + strings.TrimSpace(library))
		}
		for line := range strings.Lines(line) {
			if line = strings.TrimLeft(line, " "); line != "\n" && !strings.HasPrefix(line, "#") {
				text.WriteString(line)
			}
		}
	}
	return text.String()
}

// read returns the content of an embedded file. It panics if the file does not exist; tests read all files.
func read(name string) string {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(content)
}

// VMStart returns the command of a VM's container. The command makes the start of the container look like the boot of a VM, and becomes
// the init program. Its optional argument is the path of the init program.
func VMStart() []string { return command("vm-start") }

// VMStop returns the command that shuts a VM down, from inside, before its container is stopped. Its optional arguments are the numbers of
// seconds for which the VM keeps serving first, and for the drain scripts of its jobs, which do not run by default.
func VMStop() []string { return command("vm-stop") }

// AgentRunning returns the command that succeeds if the VM's agent runs.
func AgentRunning() []string { return command("agent-running") }

// AgentConnected returns the command that succeeds if the VM's agent is connected to its message bus.
func AgentConnected() []string { return command("agent-connected") }

// Attach returns the command of an attachment that publishes a disk as a device in a VM. After a signal to stop, it waits until the device
// is free, and exits.
func Attach() []string { return command("attach") }

// PrepareVolume returns the command of an attachment of a disk that becomes a volume of the VM Pod. It formats the disk, or grows its
// filesystem.
func PrepareVolume() []string { return command("prepare") }

// Idle returns the command of an attachment of a disk that is a volume of the VM Pod.
func Idle() []string { return command("idle") }

// WaitAttached returns the command that waits until the attachment in the same container publishes its disk.
func WaitAttached() []string { return command("wait-attached") }

// ExclusivityCheck returns the command of the exclusivity check. It opens the device of an attachment exclusively, and removes the device
// node while the device is open. If the device is in use, it prints the processes and fails.
func ExclusivityCheck() []string { return command("exclusivity-check") }

// ExitNotPublished is the exit status of ExclusivityCheck if there is no device node, and the attachment does not hold its lock. The
// disk may be in use soon, because the attachment may be about to publish it.
const ExitNotPublished = 3

// Reboot returns the command that shuts a VM down from its node, so that its container restarts.
func Reboot() []string { return command("reboot") }

// HelperPrograms returns the programs of attachment Pods and helper Pods, which are privileged, by name.
func HelperPrograms() map[string]string {
	programs := map[string]string{}
	for _, command := range [][]string{
		Attach(), PrepareVolume(), Idle(), WaitAttached(), ExclusivityCheck(), Reboot(),
	} {
		programs[command[3]] = command[2]
	}
	return programs
}

// Probe returns the command that reports what a node provides for a VM, as lines "NAME VALUE" in the termination message of its Pod. The
// environment variable SERVICE is NAME:PORT of a Service with this Pod as its only endpoint.
func Probe() []string { return command("probe") }

// Package node has the programs that containers run on the cluster's nodes: as PID 1 of a VM, in attachment Pods, and in helper Pods.
//
// They are bash programs, because they run in the image of a stemcell: it has bash and the tools for disks that each VM needs. The
// project needs no image of its own, which would have to be mirrored, released with the CPI, and built for each architecture. The
// directory lib has the libraries of the programs; a line that sources a library is replaced by its text. The package does not
// depend on Kubernetes.
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

// program returns the text of the program, including the libraries that it sources.
func program(name string) string {
	var text strings.Builder
	for line := range strings.Lines(read(name + ".sh")) {
		if library, ok := strings.CutPrefix(line, ". lib/"); ok {
			line = read("lib/" + strings.TrimSpace(library))
		}
		text.WriteString(line)
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

// VMStart returns the command of a VM's container. Its optional argument is the path of the init program. The command makes the start
// of the container look like the boot of a VM, and becomes the init program.
func VMStart() []string { return command("vm-start") }

// VMStop returns the command that shuts a VM down, from inside, before its container is stopped. Its optional argument is the number of
// seconds for which the VM keeps serving before that.
func VMStop() []string { return command("vm-stop") }

// AgentRunning returns the command that succeeds once the agent of a VM runs.
func AgentRunning() []string { return command("agent-running") }

// AgentConnected returns the command that succeeds once the agent of a VM is connected to its message bus.
func AgentConnected() []string { return command("agent-connected") }

// Attach returns the command of an attachment: it publishes a disk as a device in a VM. When it gets a signal to stop, it exits once the
// device is free.
func Attach() []string { return command("attach") }

// AttachDirectory returns the command of an attachment that publishes a disk as a directory.
func AttachDirectory() []string { return command("attach-directory") }

// PrepareVolume returns the command of an attachment of a disk that becomes a volume of the VM Pod: it formats the disk, or grows its
// filesystem.
func PrepareVolume() []string { return command("prepare") }

// Idle returns the command of an attachment of a disk that is a volume of the VM Pod.
func Idle() []string { return command("idle") }

// WaitAttached returns the command that waits until the attachment in the same container has published its disk.
func WaitAttached() []string { return command("wait-attached") }

// Release returns the command of the exclusivity check: it opens the device of an attachment exclusively, and removes the device node
// while it has the device open. It fails while the device is in use, and prints the processes.
func Release() []string { return command("release") }

// ExitNotPublished is the exit status of Release if the device node is missing and the attachment does not hold its lock: this shows
// nothing about the disk, because the attachment may be about to publish it.
const ExitNotPublished = 3

// ReleaseDirectory returns the command of the exclusivity check for a disk that is published as a directory.
func ReleaseDirectory() []string { return command("release-directory") }

// Copy returns the command that copies a disk to its successor and verifies the copy.
func Copy() []string { return command("copy") }

// ExitNoSpace is the exit status of Copy if the data does not fit: ENOSPC.
const ExitNoSpace = 28

// Reboot returns the command that shuts a VM down from its node, so that its container restarts.
func Reboot() []string { return command("reboot") }

// HelperPrograms returns the programs of privileged Pods, which are attachment Pods and helper Pods, by their names.
func HelperPrograms() map[string]string {
	programs := map[string]string{}
	for _, command := range [][]string{
		Attach(), AttachDirectory(), PrepareVolume(), Idle(), WaitAttached(), Release(), ReleaseDirectory(), Copy(), Reboot(),
	} {
		programs[command[3]] = command[2]
	}
	return programs
}

// Probe returns the command that reports what a VM finds on its node, as lines "name value" in the termination message of its Pod. The
// environment variable SERVICE is "name:port" of a Service with this Pod as its only endpoint.
func Probe() []string { return command("probe") }

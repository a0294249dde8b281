// Package node holds the programs that containers run on the cluster's nodes: as a machine's PID 1, in an
// attachment, and wherever else something has to be done where a machine or a disk is.
//
// They are bash, because each of them runs in a stemcell's image, as it is: there is bash, with the tools
// that a machine has for its disks, and no image of the project's own that would have to be mirrored, kept
// at one version with the CPI, and built for each architecture. What they share lies in lib; a line that
// sources a library stands for its text. The package knows nothing of Kubernetes.
package node

import (
	"embed"
	"strings"
)

//go:embed *.sh lib/*.sh
var files embed.FS

// command returns what a container runs to run the program of this name.
func command(name string) []string {
	return []string{"/bin/bash", "-c", program(name), name}
}

// program returns the program's text, with the libraries that it sources in their places.
func program(name string) string {
	var text strings.Builder
	for line := range strings.Lines(read(name + ".sh")) {
		if library, sourced := strings.CutPrefix(line, ". lib/"); sourced {
			line = read("lib/" + strings.TrimSpace(library))
		}
		text.WriteString(line)
	}
	return text.String()
}

// read returns a file that is part of this program. That it is there is for the tests to show.
func read(name string) string {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(content)
}

// VMStart returns the command of a machine's container, whose argument is the path of the init program,
// if that is known. It makes the container's start look like a machine's boot, and becomes the init program.
func VMStart() []string { return command("machine-start") }

// VMStop returns the command that shuts a machine down, from inside, before its container is told to end. An argument is
// for how many seconds it serves before that.
func VMStop() []string { return command("machine-stop") }

// AgentRunning returns the command that succeeds once a machine's agent runs.
func AgentRunning() []string { return command("agent-runs") }

// AgentConnected returns the command that succeeds once a machine's agent has reached its message bus.
func AgentConnected() []string { return command("agent-heard") }

// Attach returns the command of an attachment: it makes a disk appear as a device in a machine, and lets go of
// it, when it is told to end, once the device is free.
func Attach() []string { return command("hold") }

// AttachDirectory returns that of an attachment whose disk appears as a directory.
func AttachDirectory() []string { return command("hold-directory") }

// PrepareVolume returns that of an attachment whose disk is to become a volume of the machine's own Pod.
func PrepareVolume() []string { return command("prepare") }

// Idle returns that of an attachment whose disk is a volume of the machine's own Pod.
func Idle() []string { return command("keep") }

// WaitAttached returns the command that ends when the attachment, in whose container it runs, has its disk ready.
func WaitAttached() []string { return command("await") }

// Release returns the command that proves that nothing uses an attachment's device, and takes its node away
// in the same moment. It fails while the device is in use, and names the users.
func Release() []string { return command("release") }

// ExitNotPublished is the status with which Release ends when there is no node, and its attachment does not hold the disk: the VM
// may get it in the next moment, so that this says nothing.
const ExitNotPublished = 3

// ReleaseDirectory returns that for a disk that appears as a directory.
func ReleaseDirectory() []string { return command("release-directory") }

// Copy returns the command that copies a disk to another and proves the copy. It ends with NoRoom when the
// data does not fit.
func Copy() []string { return command("copy") }

// ExitNoSpace is the status with which Copy ends when the data does not fit: ENOSPC.
const ExitNoSpace = 28

// Reboot returns the command that shuts a machine down from its node, so that its container starts again.
func Reboot() []string { return command("reboot") }

// HelperPrograms returns the programs that run in Pods which help machines, with what is theirs on the node, by their names.
func HelperPrograms() map[string]string {
	programs := map[string]string{}
	for _, command := range [][]string{
		Attach(), AttachDirectory(), PrepareVolume(), Idle(), WaitAttached(), Release(), ReleaseDirectory(), Copy(), Reboot(),
	} {
		programs[command[3]] = command[2]
	}
	return programs
}

// Probe returns the command that tells what a machine would find on its node, as lines "name value" in the termination message
// of its Pod. SERVICE in its environment is the name and port, "name:port", of a Service of which it is to be the only Pod.
func Probe() []string { return command("probe") }

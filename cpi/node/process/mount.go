//go:build linux

package process

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// deviceDirectory is where a VM has its own directory of the node, which is its identity: .../NAMESPACE/NAME.
const deviceDirectory = "/dev/bosh"

// mount is a line of /proc/PID/mountinfo.
type mount struct {
	id         int // unique on the node
	device     uint64
	root       string // the directory in the filesystem
	target     string
	filesystem string // its type
}

// mountTable contains the mounts that a process sees.
type mountTable struct {
	namespace string // or "" if it cannot be read
	mounts    []mount
}

// vm returns the VM that has its directory of the node mounted here, or "".
func (t *mountTable) vm() string {
	for _, mount := range t.mounts {
		directory, name := path.Split(mount.root)
		if namespace := path.Base(directory); mount.target == deviceDirectory && namespace != "/" && name != "" {
			return namespace + "/" + name
		}
	}
	return ""
}

// mountReader reads each mount table once. Processes with the same mount namespace and root directory have the same.
type mountReader struct {
	sys    system.System
	tables map[string]*mountTable
}

// read returns the mounts of a process, and the directory of the process, or of one of its threads, in /proc. It returns an empty table
// if the process exited.
func (r mountReader) read(id int) (table *mountTable, directory string, err error) {
	directory = fmt.Sprintf("/proc/%d", id)
	table, err = r.readTask(directory)
	if !exited(err) {
		return table, directory, err
	}
	// The first thread of a process can exit before the others.
	threads, err := r.sys.ReadDir(directory + "/task")
	if err != nil && !exited(err) {
		return nil, "", err
	}
	for _, thread := range threads {
		table, err := r.readTask(directory + "/task/" + thread)
		if !exited(err) {
			return table, directory + "/task/" + thread, err
		}
	}
	return &mountTable{}, directory, nil
}

func (r mountReader) readTask(directory string) (*mountTable, error) {
	namespace, err := r.readlink(directory + "/ns/mnt")
	if err != nil {
		return nil, err
	}
	root, err := r.readlink(directory + "/root")
	if err != nil {
		return nil, err
	}
	key := namespace + " " + root
	if table := r.tables[key]; table != nil {
		return table, nil
	}
	content, err := r.sys.ReadFile(directory + "/mountinfo")
	if err != nil {
		return nil, err
	}
	table := &mountTable{namespace: namespace}
	for line := range strings.Lines(string(content)) {
		mount, err := parseMount(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("read %s/mountinfo: %w", directory, err)
		}
		table.mounts = append(table.mounts, mount)
	}
	if namespace != "" && root != "" {
		r.tables[key] = table
	}
	return table, nil
}

// readlink returns the target of a link of a process, or "" if this program cannot read it: a security module may protect processes of the
// node, even from root. Without a link, the process exited, and has no mountinfo either.
func (r mountReader) readlink(path string) (string, error) {
	target, err := r.sys.Readlink(path)
	if errors.Is(err, unix.EACCES) || exited(err) {
		return "", nil
	}
	return target, err
}

// exited reports whether an error means that a process, or a thread, exited. EINVAL is the error of mountinfo of a zombie.
func exited(err error) bool { return system.Gone(err) || errors.Is(err, unix.EINVAL) }

// parseMount parses a line of mountinfo: see proc_pid_mountinfo(5).
func parseMount(line string) (found mount, err error) {
	head, tail, separated := strings.Cut(line, " - ")
	fields, filesystem := strings.Fields(head), strings.Fields(tail)
	if !separated || len(fields) < 6 || len(filesystem) == 0 {
		return found, fmt.Errorf("%q is not a mount", line)
	}
	if found.id, err = strconv.Atoi(fields[0]); err != nil {
		return found, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); err != nil {
		return found, fmt.Errorf("%q is not a mount: %w", line, err)
	}
	found.device = unix.Mkdev(major, minor)
	found.root, found.target, found.filesystem = system.UnescapeMount(fields[3]), system.UnescapeMount(fields[4]), filesystem[0]
	return found, nil
}

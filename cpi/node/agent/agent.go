//go:build linux

// Package agent reports the state of the BOSH agent in a VM, for the probes of the VM's container.
package agent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Running returns nil if the agent runs. This is enough for the VM to be started, because the director waits for the agent's first
// response.
func Running(sys system.System) error {
	agents, err := processes(sys)
	switch {
	case len(agents) > 0:
		return nil
	case err != nil:
		return err
	}
	return errors.New("the agent does not run")
}

// Connected returns nil if the agent is connected to its message bus, or listens for connections itself. After attach_disk, the director
// sends its next request immediately and does not retry it.
func Connected(sys system.System) error {
	agents, err := processes(sys)
	for _, agent := range agents {
		connected, agentErr := isConnected(sys, agent)
		if connected {
			return nil
		}
		err = errors.Join(err, agentErr)
	}
	if err != nil {
		return err
	}
	return api.Errorf("agent-not-connected", "the agent is not connected to its message bus")
}

// processes returns the directories of the processes that execute the agent. With an error, there may be more.
func processes(sys system.System) (directories []string, err error) {
	names, err := sys.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find the agent: %w", err)
	}
	for _, name := range names {
		if _, notProcess := strconv.Atoi(name); notProcess != nil {
			continue
		}
		program, linkErr := sys.Readlink("/proc/" + name + "/exe")
		switch {
		case strings.Contains(program, "/bosh-agent"):
			directories = append(directories, "/proc/"+name)
		case linkErr != nil && !isOther(linkErr):
			err = errors.Join(err, fmt.Errorf("find the agent: %w", linkErr))
		}
	}
	return directories, err
}

// isOther reports whether an error means that a process is not the agent: it exited, is a kernel thread, or belongs to another user. The
// agent belongs to root, like this program.
func isOther(err error) bool { return system.Gone(err) || errors.Is(err, unix.EACCES) }

// isConnected reports whether the process has a connection to another host, or a port that is open to other hosts.
func isConnected(sys system.System, directory string) (bool, error) {
	sockets, err := socketsOf(sys, directory)
	if err != nil {
		return false, err
	}
	for _, file := range []string{"/net/tcp", "/net/tcp6"} {
		content, err := sys.ReadFile(directory + file)
		if system.Gone(err) {
			continue // without IPv6, or the agent exited
		} else if err != nil {
			return false, fmt.Errorf("find the connections of the agent: %w", err)
		}
		for line := range strings.Lines(string(content)) {
			if isConnection(line, sockets) {
				return true, nil
			}
		}
	}
	return false, nil
}

// loopback is the end of the address 127.0.0.1 in net/tcp, and of ::ffff:127.0.0.1 in net/tcp6. Such connections are to monit.
const loopback = "0100007F:"

// isConnection reports whether the line of net/tcp is of one of the sockets, and its state is established (01) or listening (0A).
func isConnection(line string, sockets map[string]bool) bool {
	fields := strings.Fields(line)
	if len(fields) < 10 {
		return false
	}
	local, remote, state, inode := fields[1], fields[2], fields[3], fields[9]
	return sockets[inode] && (state == "01" || state == "0A") && !strings.Contains(local+remote, loopback)
}

// socketsOf returns the inodes of the process's sockets.
func socketsOf(sys system.System, directory string) (map[string]bool, error) {
	descriptors, err := sys.ReadDir(directory + "/fd")
	if err != nil && !system.Gone(err) {
		return nil, fmt.Errorf("list the sockets of the agent: %w", err)
	}
	sockets := map[string]bool{}
	for _, descriptor := range descriptors {
		target, err := sys.Readlink(directory + "/fd/" + descriptor)
		if err != nil && !system.Gone(err) {
			return nil, fmt.Errorf("list the sockets of the agent: %w", err)
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return sockets, nil
}

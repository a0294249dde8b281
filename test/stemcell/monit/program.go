package monit

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// programPath is the whole of $PATH that monit gives the programs that it starts.
const programPath = "PATH=/bin:/usr/bin:/sbin:/usr/sbin"

// spawn starts a program and does not wait for it: it may stay, or leave a process behind. It has a session
// of its own, so that it outlives monit, no input and no output, and an environment that monit makes.
func (p *Program) spawn(service, event, description string) error {
	command := &exec.Cmd{
		Path: p.Arguments[0], Args: p.Arguments,
		Env: []string{programPath, "MONIT_SERVICE=" + service, "MONIT_EVENT=" + event, "MONIT_DESCRIPTION=" + description,
			"MONIT_DATE=" + time.Now().Format(time.RFC1123Z), "MONIT_HOST=" + hostname()},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if p.UID != "" || p.GID != "" {
		credential, err := p.credential()
		if err != nil {
			return err
		}
		command.SysProcAttr.Credential = credential
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Arguments[0], err)
	}
	go func() { _ = command.Wait() }() // or it would stay as a zombie; how it ends does not matter
	return nil
}

func (p *Program) credential() (*syscall.Credential, error) {
	credential := &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), NoSetGroups: os.Getuid() != 0}
	if p.UID != "" {
		found, err := user.Lookup(p.UID)
		if err != nil {
			if found, err = user.LookupId(p.UID); err != nil {
				return nil, fmt.Errorf("%s: there is no user %s", p.Arguments[0], p.UID)
			}
		}
		credential.Uid = parseID(found.Uid)
	}
	if p.GID != "" {
		found, err := user.LookupGroup(p.GID)
		if err != nil {
			if found, err = user.LookupGroupId(p.GID); err != nil {
				return nil, fmt.Errorf("%s: there is no group %s", p.Arguments[0], p.GID)
			}
		}
		credential.Gid = parseID(found.Gid)
	}
	return credential, nil
}

func parseID(number string) uint32 {
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n)
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

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

// programPath is the $PATH of the programs that monit starts.
const programPath = "PATH=/bin:/usr/bin:/sbin:/usr/sbin"

// spawn starts a program without waiting for it, because the program may stay in the foreground. The program has its own session, so
// that it can outlive monit. Its environment contains only variables set by monit, and it has no input or output.
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
		return fmt.Errorf("start %s: %w", p.Arguments[0], err)
	}
	go func() { _ = command.Wait() }() // avoids a zombie; the exit code does not matter
	return nil
}

func (p *Program) credential() (*syscall.Credential, error) {
	credential := &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), NoSetGroups: os.Getuid() != 0}
	if p.UID != "" {
		account, err := user.Lookup(p.UID)
		if err != nil {
			if account, err = user.LookupId(p.UID); err != nil {
				return nil, fmt.Errorf("%s: unknown user %s", p.Arguments[0], p.UID)
			}
		}
		credential.Uid = parseID(account.Uid)
	}
	if p.GID != "" {
		group, err := user.LookupGroup(p.GID)
		if err != nil {
			if group, err = user.LookupGroupId(p.GID); err != nil {
				return nil, fmt.Errorf("%s: unknown group %s", p.Arguments[0], p.GID)
			}
		}
		credential.Gid = parseID(group.Gid)
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

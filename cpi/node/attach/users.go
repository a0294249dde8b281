//go:build linux

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/volume"
)

// checkNotUsedByOthers fails if the device is in use, and not only by this VM. used reports that the VM uses it. It retries, because other
// programs, such as an exclusivity check, open the device exclusively for a moment.
//
// A mount of this device in the VM shows that the VM uses it. A btrfs filesystem, a volume group or an encrypted device shows no such
// mount: if the VM already has a node of the disk, as published reports, it is the VM that uses the device, unless another user is visible.
func (a attachment) checkNotUsedByOthers(ctx context.Context, prepared *volume.Device, published bool) (used bool, err error) {
	err = attempt(ctx, func() error {
		file, err := device.OpenExclusive(a.sys, prepared.Path)
		if err == nil {
			used = false
			return file.Close()
		} else if !errors.Is(err, device.ErrBusy) {
			return err
		}
		table, err := process.Read(a.sys)
		if err != nil {
			return err
		}
		mounted := table.Mounted(prepared.Numbers.Dev())
		outside := func(user process.Mounted) bool { return user.VM != a.disk.VM }
		if (len(mounted) > 0 || published) && !slices.ContainsFunc(mounted, outside) {
			used = true
			return nil
		}
		return a.inUse("cannot publish disk %s in VM %s", prepared.Numbers)
	})
	return used, err
}

// inUse returns the error if the device is in use outside of the VM. The format is for the disk and the VM.
func (a attachment) inUse(format string, numbers device.Numbers) error {
	users, err := a.users(numbers)
	if err != nil {
		return err
	}
	return api.Errorf("disk-in-use", format+": it is in use outside of the VM: %s", a.disk.CID, a.disk.VM, describe(users)).With(users)
}

// explain returns the users of the device if it is busy, or the error.
func (a attachment) explain(numbers device.Numbers, err error) string {
	if !errors.Is(err, device.ErrBusy) {
		return err.Error()
	}
	users, usersErr := a.users(numbers)
	if usersErr != nil {
		return fmt.Sprintf("%s; its users are unknown: %s", err, usersErr)
	}
	return describe(users)
}

// users returns the processes of the node that have the device mounted, one for each mount namespace, those of the VM that use it in
// another way, and loop devices that show it.
func (a attachment) users(numbers device.Numbers) ([]api.User, error) {
	table, err := process.Read(a.sys)
	if err != nil {
		return nil, err
	}
	users, err := table.Users(a.disk.VM, numbers.Dev())
	if err != nil {
		return nil, err
	}
	var others []api.User
	for _, mounted := range table.Mounted(numbers.Dev()) {
		if mounted.VM != a.disk.VM {
			others = append(others, mounted.User)
		}
	}
	loops, err := device.LoopsOver(a.sys, numbers)
	for _, path := range loops {
		users = append(users, api.User{Name: "loop device", Path: path})
	}
	return append(others, users...), err
}

// describe lists the users in a message.
func describe(users []api.User) string {
	if len(users) == 0 {
		return "this program sees no process that uses it"
	}
	texts := make([]string, len(users))
	for i, user := range users {
		texts[i] = user.String()
	}
	return strings.Join(texts, "\n")
}

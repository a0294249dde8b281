//go:build linux

package system

import "golang.org/x/sys/unix"

// HasCapability reports whether this process has a capability, for example unix.CAP_SYS_RESOURCE. Programs that it runs have the same.
func (s System) HasCapability(capability int) (bool, error) {
	return ask(s, "capget", "", func(string) (bool, error) {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		return data[capability/32].Effective>>(capability%32)&1 == 1, err
	})
}

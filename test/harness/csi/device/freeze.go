package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Constants of linux/fs.h that x/sys/unix does not define.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// Freeze stops writes to the mounted filesystems on the device and its partitions, in all mount namespaces of the host. thaw allows
// writes again, except to filesystems that were already frozen.
func Freeze(device string) (thaw func() error, err error) {
	var frozen []*os.File
	thaw = func() error {
		var failures []error
		for _, file := range frozen {
			if err := unix.IoctlSetInt(int(file.Fd()), fiThaw, 0); err != nil {
				failures = append(failures, fmt.Errorf("thaw %s: %w", file.Name(), err))
			}
			failures = append(failures, file.Close())
		}
		return errors.Join(failures...)
	}
	err = forEachFilesystem(device, func(file *os.File) error {
		err := unix.IoctlSetInt(int(file.Fd()), fiFreeze, 0)
		if err == nil {
			frozen = append(frozen, file)
			return nil
		}
		_ = file.Close()
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // frozen by another process, or does not support freezing
		}
		return fmt.Errorf("freeze %s: %w", file.Name(), err)
	})
	if err != nil {
		return nil, errors.Join(err, thaw())
	}
	return thaw, nil
}

// Thaw allows writes to the filesystems on the device again, even if another process froze them.
func Thaw(device string) error {
	return forEachFilesystem(device, func(file *os.File) error {
		defer file.Close()
		err := unix.IoctlSetInt(int(file.Fd()), fiThaw, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // was not frozen
		}
		return err
	})
}

// forEachFilesystem calls do with an open mount point of each filesystem that is mounted from the device. One mount point is enough to
// freeze a filesystem everywhere.
func forEachFilesystem(device string, do func(*os.File) error) error {
	numbers, err := deviceNumbers(device)
	if err != nil {
		return err
	}
	tables, err := mountTables()
	if err != nil {
		return err
	}
	for _, number := range numbers {
		for process, table := range tables {
			index := slices.IndexFunc(table, func(m MountEntry) bool { return m.Number == number })
			if index < 0 {
				continue
			}
			path := filepath.Join(process, "root", table[index].Point)
			file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // hidden by a later mount, or unmounted; try another process
			}
			if err := do(file); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// deviceNumbers returns the numbers of the device and of its partitions.
func deviceNumbers(device string) ([]string, error) {
	name := filepath.Base(device)
	files, err := filepath.Glob(filepath.Join("/sys/block", name, name+"*", "dev"))
	if err != nil {
		return nil, err
	}
	var numbers []string
	for _, file := range append([]string{filepath.Join("/sys/block", name, "dev")}, files...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, strings.TrimSpace(string(raw)))
	}
	return numbers, nil
}

// mountTables returns the mounts of every mount namespace, by the path in /proc of one of its processes.
func mountTables() (map[string][]MountEntry, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	tables, seen := map[string][]MountEntry{}, map[string]bool{}
	for _, process := range processes {
		namespace, err := os.Readlink(filepath.Join(process, "ns/mnt"))
		if err != nil || seen[namespace] {
			continue // the process exited, or its namespace is known
		}
		table, err := mounts(filepath.Join(process, "mountinfo"))
		if err != nil {
			continue
		}
		seen[namespace] = true
		tables[process] = table
	}
	return tables, nil
}

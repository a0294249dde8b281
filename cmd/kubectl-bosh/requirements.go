package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
)

// minFreeMiB is the free space in the home directory that the BOSH CLI requires for releases and stemcells. minStateMiB is much more than
// its files in the environment directory.
const (
	minFreeMiB  = 1024
	minStateMiB = 8
)

// checkRequirements returns an error that names everything that `bosh create-env` and `bosh delete-env` require and this host does not
// have.
func (o *runOptions) checkRequirements(ctx context.Context) error {
	return errors.Join(o.checkBOSHCLI(ctx), checkRuby())
}

var cliVersion = regexp.MustCompile(`(?m)^version (\d+)\.`)

func (o *runOptions) checkBOSHCLI(ctx context.Context) error {
	const remedy = "; install it (https://bosh.io/docs/cli-v2-install/), or set --bosh to its path"
	if _, err := exec.LookPath(o.boshProgram()); err != nil {
		return fmt.Errorf("cannot find the BOSH CLI: %w"+remedy, err)
	}
	out, err := exec.CommandContext(ctx, o.boshProgram(), "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w"+remedy, o.boshProgram(), err)
	}
	match := cliVersion.FindSubmatch(out)
	if match == nil {
		return nil // a development build
	}
	if major, _ := strconv.Atoi(string(match[1])); 0 < major && major < 7 {
		return fmt.Errorf("%s has version %d, but version 7 is required"+remedy, o.boshProgram(), major)
	}
	return nil
}

func checkRuby() error {
	if _, err := exec.LookPath("ruby"); err != nil {
		return errors.New("cannot find ruby, with which the BOSH CLI renders the director's templates; install it, for example with " +
			"`apt-get install ruby`, `dnf install ruby` or `brew install ruby`")
	}
	return nil
}

// checkFreeSpace returns an error if the BOSH CLI has too little space for create-env, in the home directory or in the environment
// directory: on a full disk, it empties the file with the director's state.
func checkFreeSpace(dir environment.Dir) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	return errors.Join(checkFreeMiB(home, minFreeMiB, "set HOME to another directory"),
		checkFreeMiB(dir.Path, minStateMiB, "move the directory to another disk"))
}

func checkFreeMiB(path string, required uint64, remedy string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if free := stat.Bavail * uint64(stat.Bsize) >> 20; free < required { //nolint:gosec // its type differs by platform
		return fmt.Errorf("%s has %d MiB of free space, but the BOSH CLI requires %d MiB there; delete files, or %s",
			path, free, required, remedy)
	}
	return nil
}

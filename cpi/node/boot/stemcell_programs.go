//go:build linux

package boot

import (
	"context"
	"fmt"
	"path/filepath"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// findProgram returns the path of a program of the stemcell, or "" if the stemcell does not have it.
func (v *vm) findProgram(name string) (string, error) {
	directories := v.variable("PATH")
	if directories == "" {
		directories = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	for _, directory := range filepath.SplitList(directories) {
		path := filepath.Join(directory, name)
		executable, err := files.IsExecutable(v.sys, path)
		if err != nil {
			return "", err
		}
		if executable {
			return path, nil
		}
	}
	return "", nil
}

// requireProgram returns the path of a program that every stemcell has.
func (v *vm) requireProgram(name string) (string, error) {
	path, err := v.findProgram(name)
	if err == nil && path == "" {
		err = fmt.Errorf("the stemcell has no program %s", name)
	}
	return path, err
}

// mustRun runs a program of the stemcell that must succeed.
func (v *vm) mustRun(ctx context.Context, name string, arguments ...string) error {
	path, err := v.requireProgram(name)
	if err != nil {
		return err
	}
	_, err = v.sys.MustRun(ctx, v.sys.Path(path), arguments...)
	return err
}

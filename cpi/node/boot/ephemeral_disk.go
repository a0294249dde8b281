//go:build linux

package boot

import (
	"context"
	"path/filepath"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
)

// checkEphemeralDisk fails if the VM booted before, and its files are gone. A node that is rebuilt with the same name starts the Pods that
// are bound to it, with empty volumes: the VM would run without its jobs and its disk, and would look healthy.
func (v *vm) checkEphemeralDisk() error {
	record, err := files.Read(v.sys, booted)
	if err != nil || string(record) != "true" {
		return err
	}
	exists, err := files.IsDirectory(v.sys, ephemeralDisk+"/vcap")
	if err != nil || exists {
		return err
	}
	return api.Errorf("ephemeral-disk-lost", "the VM booted before, but its ephemeral disk is empty: its node was rebuilt; "+
		"recreate the VM, which keeps the data of its persistent disks")
}

// mountVcap mounts the VM's /var/vcap, which is on the ephemeral disk.
func (v *vm) mountVcap(ctx context.Context) error {
	const volume = ephemeralDisk + "/vcap"
	exists, err := files.IsDirectory(v.sys, volume)
	if err != nil {
		return err
	}
	if !exists {
		v.log.Print("first start: copying /var/vcap from the stemcell")
		// The jobs of a new VM are stopped until the director starts them. The agent then removes this file (monit_job_supervisor.go).
		if err := v.sys.MkdirAll(vcap+"/monit", 0o755); err != nil {
			return err
		}
		if err := v.sys.WriteFile(vcap+"/monit/stopped", nil, 0o644); err != nil {
			return err
		}
		if err := v.copyFromImage(ctx, vcap, "vcap"); err != nil {
			return err
		}
	}
	if err := mounts.Bind(v.sys, volume, vcap); err != nil {
		return err
	}
	// On other VMs, this is a tmpfs that the agent mounts at each boot. With files of an earlier start, monit would start too early, and
	// consider processes running that exited.
	return v.sys.RemoveAll(vcap + "/data/sys/run")
}

// copyFromImage copies a directory of the image to the ephemeral disk. An interrupted copy starts over.
func (v *vm) copyFromImage(ctx context.Context, directory, name string) error {
	path := filepath.Join(ephemeralDisk, name)
	if err := v.sys.RemoveAll(path + ".new"); err != nil {
		return err
	}
	if err := v.mustRun(ctx, "cp", "-a", v.sys.Path(directory), v.sys.Path(path+".new")); err != nil {
		return err
	}
	return files.RenameSynced(v.sys, path+".new", path)
}

// mountCertificates keeps the director's trusted certificates, because the agent writes them in update_settings, and not at each boot.
func (v *vm) mountCertificates(ctx context.Context) error {
	const trusted, volume = "/usr/local/share/ca-certificates", ephemeralDisk + "/ca-certificates"
	program, err := v.findProgram("update-ca-certificates")
	if err != nil || program == "" {
		return err
	}
	if err := v.sys.MkdirAll(trusted, 0o755); err != nil {
		return err
	}
	exists, err := files.IsDirectory(v.sys, volume)
	if err != nil {
		return err
	}
	if !exists {
		if err := v.copyFromImage(ctx, trusted, "ca-certificates"); err != nil {
			return err
		}
		return mounts.Bind(v.sys, volume, trusted)
	}
	if err := mounts.Bind(v.sys, volume, trusted); err != nil {
		return err
	}
	// The program starts several others for each certificate of the stemcell, and has nothing to do if the director never trusted any.
	certificates, err := v.sys.ReadDir(trusted)
	if err != nil {
		return err
	}
	updated, err := files.IsDirectory(v.sys, ephemeralDisk+"/changes/etc/upper/ssl/certs")
	if err != nil || len(certificates) == 0 && !updated {
		return err
	}
	output, err := v.sys.Run(ctx, v.sys.Path(program))
	if err == nil && output.Status != 0 {
		v.log.Printf("cannot update the trusted certificates: %s", output.Stderr)
	}
	return err
}

// linkMonitState keeps monit's state file, which is in root's home directory and contains the jobs stopped by the director.
func (v *vm) linkMonitState(context.Context) error {
	users, err := files.Read(v.sys, "/etc/passwd")
	if err != nil {
		return err
	}
	home := "/root"
	for line := range strings.Lines(string(users)) {
		if fields := strings.Split(line, ":"); fields[0] == "root" && len(fields) > 5 {
			home = fields[5]
			break
		}
	}
	return files.UpdateLink(v.sys, ephemeralDisk+"/monit.state", filepath.Join(home, ".monit.state"))
}

//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// The agent cannot migrate a disk to or from a directory. update_disk copies the files without the agent.
var _ = Describe("A disk that changes between device and directory", Label("disks", "extended"), func() {
	It("keeps its files and their attributes after each update_disk", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx)
		previous := vm.identity(ctx)
		disk := env.createDisk(ctx, 64, filesystemDisk)
		vm.attach(ctx, disk)
		attributes := checkDisk + " && cd /var/vcap/store && stat --format='%n %F %a %U:%G %Y %h' data tree/* | sort && cat tree/file"
		vm.run(ctx, fillDisk+" && cd /var/vcap/store && mkdir tree && install -m 4750 -o vcap -g vcap /bin/true tree/suid && "+
			"echo x >tree/file && ln tree/file tree/hardlink && ln -s file tree/symlink && truncate -s 4M tree/sparse && sync -f .")
		content := vm.run(ctx, attributes)
		for _, change := range []struct {
			sizeMiB    int
			properties map[string]any
			kind       string
		}{
			{64, map[string]any{"attach": "bind", "storage_class": embedded.CSIClass}, "bound"},
			{80, map[string]any{"attach": "bind", "storage_class": "standard"}, "bound"},
			{96, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": "Block"}, "device"},
		} {
			vm.detach(ctx, disk)
			successor := env.mustCall(ctx, "update_disk", disk, change.sizeMiB, env.diskProperties(change.properties)).Text()
			Expect(successor).NotTo(Equal(disk))
			vm.attach(ctx, successor)
			Expect(vm.run(ctx, attributes)).To(Equal(content))
			Expect(vm.run(ctx, "mountpoint -q /dev/bosh/"+successor+" && echo bound || echo device")).To(Equal(change.kind))
			disk = successor
		}
		Expect(vm.identity(ctx)).To(Equal(previous))
		vm.detach(ctx, disk)
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})

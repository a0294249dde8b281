//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
)

// The steps are those of docs/guides/operations.md.
var _ = Describe("A director that was restored from a backup", Label("director", "extended"), func() {
	It("gets the address and the disk of a VM that it does not know after the operator deletes that VM", func(ctx context.Context) {
		env := newTestEnv(ctx)
		known, unknown := env.createVM(ctx), env.createVM(ctx)
		for index, vm := range []*testVM{known, unknown} {
			env.mustCall(ctx, "set_vm_metadata", vm.cid, map[string]any{"deployment": "web", "job": "app", "index": fmt.Sprint(index)})
		}
		disk := env.createDisk(ctx, 64, map[string]any{})
		unknown.attach(ctx, disk)
		unknown.run(ctx, "echo kept >/var/vcap/store/file")

		By("failing with the remedy")
		remedy := ContainSubstring("VM " + unknown.cid + " (app/1 of deployment web)")
		command := ContainSubstring("`bosh -d web delete-vm " + unknown.cid + "`")
		failed := env.mustFail(ctx, "create_vm", env.namespace+"-restored", env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), env.properties,
			manualNetwork(unknown.address), []string{disk}, map[string]any{})
		Expect(failed).To(And(HaveField("OkToRetry", false), HaveField("Message", And(remedy, command, HaveSuffix("[address-in-use]")))))
		Expect(env.mustFail(ctx, "attach_disk", known.cid, disk).Message).To(And(remedy, command, HaveSuffix("[disk-in-use]")))

		By("listing the VM that the director does not know")
		unknownObjects := env.listUnknown(ctx, known.cid, disk)
		Expect(unknownObjects).To(And(remedy, command))
		Expect(unknownObjects).NotTo(Or(ContainSubstring(known.cid), ContainSubstring(disk)))

		By("deleting the VM, and recreating the instance with its address and disk")
		env.mustCall(ctx, "delete_vm", unknown.cid)
		restored := env.createVMFromSpec(ctx, vmSpec{networks: manualNetwork(unknown.address), disks: []string{disk}})
		restored.attach(ctx, disk)
		Expect(restored.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
	}, NodeTimeout(longTest))
})

// listUnknown returns the output of kubectl bosh collect for a director that knows one VM and its disk.
func (env *testEnv) listUnknown(ctx context.Context, vm, disk string) string {
	GinkgoHelper()
	outputs := fmt.Sprintf(`{"Tables": [{"Content": "vms", "Rows": [{"vm_cid": %[1]q}]}]}
		{"Tables": [{"Content": "orphaned_vms"}]} {"Tables": [{"Content": "disks"}]}
		{"Tables": [{"Content": "instances", "Header": {"disk_cids": "Disk CIDs"}, "Rows": [{"vm_cid": %[1]q, "disk_cids": %[2]q}]}]}`, vm, disk)
	known := filepath.Join(GinkgoT().TempDir(), "known.json")
	Expect(os.WriteFile(known, []byte(outputs), 0o600)).To(Succeed())
	out, err := exec.CommandContext(ctx, "../../bin/kubectl-bosh", "collect", "--kubeconfig", env.kubeconfig, "--namespace", env.namespace,
		"--director", director.UUID, "--known", known).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

package vm

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("An exclusivity check that fails", func() {
	var env *testEnv
	var vm, disk string
	BeforeEach(func() {
		env = newTestEnv()
		vm, disk = env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, disk)
		Expect(err).NotTo(HaveOccurred())
	})

	It("names the processes that use the disk, with one code", func() {
		env.check.findInUse()
		Expect(call.AsBOSHError(env.Detach(vm, disk)).WithCode()).To(MatchError("cannot detach disk " + disk + ": it is still in use in VM " + vm +
			": process 12 (postgres) has it mounted at /var/vcap/store [disk-in-use]"))
	})

	DescribeTable("does not say that the disk is in use", func(result checkResult, message string) {
		env.check = result
		err := env.Detach(vm, disk)
		Expect(err).NotTo(haveCode(call.CodeDiskInUse))
		Expect(call.AsBOSHError(err).WithCode()).To(MatchError("cannot detach disk " + disk + " from VM " + vm + ": the exclusivity check failed: " + message))
	},
		Entry("if it cannot open the device", checkResult{api.ExitFailed, `{"version": 1, "code": "disk-check-failed", "message": "input/output error"}`},
			"input/output error [disk-check-failed]"),
		Entry("if it fails with another code", checkResult{api.ExitFailed, `{"version": 1, "code": "loop-device-unavailable", "message": "two devices"}`},
			"two devices [loop-device-unavailable]"),
		Entry("if its program fails without a result", checkResult{api.ExitUsage, "panic: no memory"}, "panic: no memory [disk-check-failed]"),
		Entry("if its program fails without a message", checkResult{api.ExitUsage, ""}, "exit status 2 [disk-check-failed]"),
	)
})

package history

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestHistory(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "history")
}

// newCall returns a call for the subject "d", with its start and end in seconds.
func newCall(from, to int, method, vm string, outcome Outcome) Call {
	return Call{
		Method: method, Subject: "d", VM: vm, Outcome: outcome,
		Started: int64(time.Duration(from) * time.Second), Ended: int64(time.Duration(to) * time.Second),
	}
}

func newResizeCall(from, to, size int, outcome Outcome) Call {
	call := newCall(from, to, "resize_disk", "", outcome)
	call.SizeMiB = size
	return call
}

// The calls of a history in which the disk already has a volume.
var (
	attachedBefore = newCall(-4, -3, "attach_disk", "a", Succeeded)
	detachedBefore = newCall(-2, -1, "detach_disk", "a", Succeeded)
)

var _ = Describe("CheckDisk", func() {
	DescribeTable("accepts a history in which", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).To(BeEmpty())
	},
		Entry("the disk is attached to one VM after another", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded), newCall(4, 5, "attach_disk", "b", Succeeded)),
		Entry("a call is retried", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "attach_disk", "a", Succeeded), newCall(4, 5, "detach_disk", "a", Succeeded), newCall(6, 7, "detach_disk", "a", NotAttached)),
		Entry("a killed call took effect", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes)),
		Entry("a killed call did not take effect", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No)),
		Entry("a killed call takes effect shortly after it ended", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No), newCall(4, 5, "get_disks", "a", Yes)),
		Entry("one of two concurrent attach_disk calls waits for the other VM", newCall(0, 9, "attach_disk", "b", Succeeded), newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded)),
		Entry("calls do not find a deleted disk", newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", No), newCall(4, 5, "attach_disk", "a", NotFound), newCall(6, 7, "delete_disk", "", NotFound)),
		Entry("two concurrent detach_disk calls succeed", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 5, "detach_disk", "a", Succeeded), newCall(2, 5, "detach_disk", "a", Succeeded)),
		Entry("a disk without a volume keeps its size", newResizeCall(0, 1, 128, Rejected), newResizeCall(2, 3, 64, Succeeded)),
		Entry("a failed attach_disk call leaves a volume", newCall(0, 1, "attach_disk", "a", Failed), newCall(20, 21, "get_disks", "a", No), newResizeCall(22, 23, 128, Succeeded), newCall(24, 25, "get_disks", "a", No)),
		Entry("get_disks returns a disk that is deleted during attach_disk", newCall(0, 9, "attach_disk", "a", Killed), newCall(1, 3, "delete_disk", "", Succeeded), newCall(2, 3, "get_disks", "a", Yes)),
		Entry("get_disks returns a deleted disk until attach_disk ends", newCall(0, 9, "attach_disk", "a", Failed),
			newCall(1, 3, "delete_disk", "", Succeeded), newCall(4, 5, "get_disks", "a", Yes), newCall(20, 21, "get_disks", "a", No)),
		Entry("detach_disk succeeds during attach_disk, before the disk has a volume", newCall(0, 9, "attach_disk", "a", Failed),
			newCall(1, 2, "get_disks", "a", Yes), newCall(3, 8, "detach_disk", "a", Succeeded), newResizeCall(20, 21, 128, Rejected)),
		Entry("a disk is deleted during two attach_disk calls, one of them killed, and detached later", newCall(0, 1, "attach_disk", "a", Killed),
			newCall(0, 9, "attach_disk", "a", NotFound), newCall(0, 2, "delete_disk", "", Succeeded), newCall(3, 4, "has_disk", "", No), newCall(12, 13, "detach_disk", "a", Succeeded)),
		Entry("attach_disk reports that the disk was deleted meanwhile", newCall(0, 9, "attach_disk", "a", NotFound), newCall(1, 2, "get_disks", "a", Yes),
			newCall(0, 4, "delete_disk", "", Succeeded), newCall(5, 6, "get_disks", "a", Yes), newCall(20, 21, "detach_disk", "a", NotFound)),
		Entry("the disk is deleted while one detach_disk call waits for another", attachedBefore, newCall(0, 9, "detach_disk", "a", Succeeded),
			newCall(2, 3, "delete_disk", "", Succeeded), newCall(4, 5, "has_disk", "", No), newCall(6, 9, "detach_disk", "a", Succeeded)),
		Entry("a disk that was deleted during attach_disk is detached", newCall(0, 5, "attach_disk", "a", Failed), newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", No), newCall(3, 5, "detach_disk", "a", Succeeded), newCall(6, 7, "detach_disk", "a", NotFound)),
		Entry("the disk grows, and does not shrink", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Succeeded), newResizeCall(2, 3, 96, Rejected), newResizeCall(4, 5, 128, Succeeded)),
	)

	DescribeTable("rejects a history in which", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).NotTo(BeEmpty())
	},
		Entry("has_disk finds a disk after attach_disk did not find it", newCall(0, 1, "attach_disk", "a", NotFound), newCall(2, 3, "has_disk", "", Yes)),
		Entry("set_disk_metadata finds a disk after attach_disk did not find it", newCall(0, 5, "attach_disk", "a", NotFound), newCall(6, 7, "set_disk_metadata", "", Succeeded)),
		Entry("the disk is attached to two VMs", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "attach_disk", "b", Succeeded)),
		Entry("an attached disk is deleted", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "delete_disk", "", Succeeded)),
		Entry("detach_disk succeeds for a deleted disk that was not attached", attachedBefore, detachedBefore, newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded)),
		Entry("a disk attached by a killed call is deleted", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes), newCall(4, 5, "delete_disk", "", Succeeded)),
		Entry("a disk attached by a killed call is attached to another VM", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes), newCall(4, 5, "attach_disk", "b", Succeeded)),
		Entry("an attached disk grows", newCall(0, 1, "attach_disk", "a", Succeeded), newResizeCall(2, 3, 128, Succeeded)),
		Entry("the disk is detached without a call", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "get_disks", "a", No)),
		Entry("the disk is attached without a call", newCall(0, 1, "get_disks", "a", Yes)),
		Entry("the disk is detached from a VM to which it is not attached", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "b", Succeeded)),
		Entry("resize_disk rejects growing a disk that can grow", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Rejected)),
		Entry("has_disk finds a deleted disk", newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", Yes)),
		Entry("the disk shrinks", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Succeeded), newResizeCall(2, 3, 96, Succeeded)),
		Entry("a killed call takes effect 15 minutes after it ended", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No),
			newCall(900, 901, "get_disks", "a", No), newCall(902, 903, "get_disks", "a", Yes)),
	)

	It("returns the call that violates the history, and the history up to its end", func() {
		calls := []Call{
			newCall(6, 7, "detach_disk", "b", Succeeded), newCall(0, 1, "attach_disk", "a", Succeeded),
			newCall(2, 3, "attach_disk", "b", Succeeded), newCall(8, 9, "has_disk", "", Yes),
		}
		Expect(CheckDisk(calls, 64)).To(Equal("the outcome of\n" +
			"     2.000s to      3.000s attach_disk d b: succeeded\n" +
			"is not possible in\n" +
			"     0.000s to      1.000s attach_disk d a: succeeded\n" +
			"     2.000s to      3.000s attach_disk d b: succeeded\n"))
	})
})

var _ = Describe("CheckVM", func() {
	DescribeTable("accepts a history in which", func(calls ...Call) {
		Expect(CheckVM(calls)).To(BeEmpty())
	},
		Entry("the VM is created, created again, and deleted", newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "create_vm", "", Succeeded), newCall(4, 5, "delete_vm", "", Succeeded), newCall(6, 7, "has_vm", "", No)),
		Entry("the VM is deleted during create_vm", newCall(0, 9, "create_vm", "", Failed), newCall(1, 3, "delete_vm", "", Succeeded), newCall(20, 21, "has_vm", "", No)),
		Entry("two concurrent delete_vm calls succeed", newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 5, "delete_vm", "", Succeeded), newCall(2, 5, "delete_vm", "", Succeeded)),
	)

	DescribeTable("rejects a history in which", func(calls ...Call) {
		Expect(CheckVM(calls)).NotTo(BeEmpty())
	},
		Entry("has_vm finds a VM before it is created", newCall(0, 1, "has_vm", "", Yes)),
		Entry("set_vm_metadata does not find a created VM", newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "set_vm_metadata", "", NotFound)),
		Entry("has_vm finds a deleted VM", newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "delete_vm", "", Succeeded), newCall(4, 5, "has_vm", "", Yes)),
	)
})

var _ = Describe("CountOutcomes", func() {
	It("counts calls by method and outcome", func() {
		calls := []Call{
			newCall(0, 1, "has_disk", "", Yes), newCall(0, 1, "has_disk", "", Yes), newCall(0, 1, "delete_disk", "", NotFound),
		}
		Expect(CountOutcomes(calls)).To(Equal("delete_disk not found: 1\nhas_disk yes: 2\n"))
	})
})

var _ = DescribeTable("OutcomeOf returns the outcome for an error type:",
	func(errorType string, outcome Outcome) { Expect(OutcomeOf(errorType)).To(Equal(outcome)) },
	Entry(nil, "", Succeeded),
	Entry(nil, "Bosh::Clouds::DiskNotFound", NotFound),
	Entry(nil, "Bosh::Clouds::VMNotFound", NotFound),
	Entry(nil, "Bosh::Clouds::DiskNotAttached", NotAttached),
	Entry(nil, "Bosh::Clouds::NotSupported", Rejected),
	Entry(nil, "Bosh::Clouds::CloudError", Failed),
)

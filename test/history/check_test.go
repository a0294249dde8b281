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

// newCall is about the disk d or the machine m, and lasts these seconds.
func newCall(from, to int, method, vm string, outcome Outcome) Call {
	return Call{
		Method: method, Subject: "d", VM: vm, Outcome: outcome,
		Started: int64(time.Duration(from) * time.Second), Ended: int64(time.Duration(to) * time.Second),
	}
}

func newResizeCall(from, to, size int, outcome Outcome) Call {
	c := newCall(from, to, "resize_disk", "", outcome)
	c.SizeMiB = size
	return c
}

// The disk has been used before.
var attachedBefore, detachedBefore = newCall(-4, -3, "attach_disk", "a", Succeeded), newCall(-2, -1, "detach_disk", "a", Succeeded)

var _ = Describe("A history", func() {
	DescribeTable("of a disk can be that", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).To(BeEmpty())
	},
		Entry("one VM has it, and then another", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded), newCall(4, 5, "attach_disk", "b", Succeeded)),
		Entry("a call is repeated", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "attach_disk", "a", Succeeded), newCall(4, 5, "detach_disk", "a", Succeeded), newCall(6, 7, "detach_disk", "a", NotAttached)),
		Entry("a killed call has had its effect", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes)),
		Entry("a killed call has had none", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No)),
		Entry("a killed call has its effect a little later", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No), newCall(4, 5, "get_disks", "a", Yes)),
		Entry("of two VMs at once the second waits its turn", newCall(0, 9, "attach_disk", "b", Succeeded), newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded)),
		Entry("it is gone once it is deleted", newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", No), newCall(4, 5, "attach_disk", "a", NotFound), newCall(6, 7, "delete_disk", "", NotFound)),
		Entry("two calls detach it at once, and both have done it", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 5, "detach_disk", "a", Succeeded), newCall(2, 5, "detach_disk", "a", Succeeded)),
		Entry("it has no volume yet that could grow", newResizeCall(0, 1, 128, Refused), newResizeCall(2, 3, 64, Refused)),
		Entry("it has a volume of a call that came to nothing else", newCall(0, 1, "attach_disk", "a", Failed), newCall(20, 21, "get_disks", "a", No), newResizeCall(22, 23, 128, Succeeded), newCall(24, 25, "get_disks", "a", No)),
		Entry("it is deleted while it is being attached, which get_disks has seen", newCall(0, 9, "attach_disk", "a", Killed), newCall(1, 3, "delete_disk", "", Succeeded), newCall(2, 3, "get_disks", "a", Yes)),
		Entry("it is deleted while it is being attached, which is seen only as long as that lasts", newCall(0, 9, "attach_disk", "a", Failed),
			newCall(1, 3, "delete_disk", "", Succeeded), newCall(4, 5, "get_disks", "a", Yes), newCall(20, 21, "get_disks", "a", No)),
		Entry("it has no volume yet when it is taken away from a call that attaches it", newCall(0, 9, "attach_disk", "a", Failed),
			newCall(1, 2, "get_disks", "a", Yes), newCall(3, 8, "detach_disk", "a", Succeeded), newResizeCall(20, 21, 128, Refused)),
		Entry("it is deleted while two calls attach it, of which one is killed, and its attachment is taken away later", newCall(0, 1, "attach_disk", "a", Killed),
			newCall(0, 9, "attach_disk", "a", NotFound), newCall(0, 2, "delete_disk", "", Succeeded), newCall(3, 4, "has_disk", "", No), newCall(12, 13, "detach_disk", "a", Succeeded)),
		Entry("it is deleted while it is being attached, as that call says", newCall(0, 9, "attach_disk", "a", NotFound), newCall(1, 2, "get_disks", "a", Yes),
			newCall(0, 4, "delete_disk", "", Succeeded), newCall(5, 6, "get_disks", "a", Yes), newCall(20, 21, "detach_disk", "a", NotFound)),
		Entry("it is deleted while a second detach_disk waits for the first one's end", attachedBefore, newCall(0, 9, "detach_disk", "a", Succeeded),
			newCall(2, 3, "delete_disk", "", Succeeded), newCall(4, 5, "has_disk", "", No), newCall(6, 9, "detach_disk", "a", Succeeded)),
		Entry("its attachment is taken away when it is deleted", newCall(0, 5, "attach_disk", "a", Failed), newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", No), newCall(3, 5, "detach_disk", "a", Succeeded), newCall(6, 7, "detach_disk", "a", NotFound)),
		Entry("it grows, and does not shrink", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Succeeded), newResizeCall(2, 3, 96, Refused), newResizeCall(4, 5, 128, Succeeded)),
	)

	DescribeTable("of a disk cannot be that", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).NotTo(BeEmpty())
	},
		Entry("it is there once an attach_disk has said that it is not", newCall(0, 1, "attach_disk", "a", NotFound), newCall(2, 3, "has_disk", "", Yes)),
		Entry("it is there while an attach_disk has said that it is not", newCall(0, 5, "attach_disk", "a", NotFound), newCall(6, 7, "set_disk_metadata", "", Succeeded)),
		Entry("two VMs have it", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "attach_disk", "b", Succeeded)),
		Entry("it is deleted while a VM has it", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "delete_disk", "", Succeeded)),
		Entry("it is taken from a VM long after it was deleted", attachedBefore, detachedBefore, newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "detach_disk", "a", Succeeded)),
		Entry("it is deleted after a VM was given it by a call that was killed", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes), newCall(4, 5, "delete_disk", "", Succeeded)),
		Entry("another VM has it while the first may have it", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", Yes), newCall(4, 5, "attach_disk", "b", Succeeded)),
		Entry("it grows while a VM has it", newCall(0, 1, "attach_disk", "a", Succeeded), newResizeCall(2, 3, 128, Succeeded)),
		Entry("it leaves its VM by itself", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "get_disks", "a", No)),
		Entry("it comes to a VM by itself", newCall(0, 1, "get_disks", "a", Yes)),
		Entry("it is taken from a VM that does not have it", newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "detach_disk", "b", Succeeded)),
		Entry("it does not grow, though it could", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Refused)),
		Entry("it comes back once it is deleted", newCall(0, 1, "delete_disk", "", Succeeded), newCall(2, 3, "has_disk", "", Yes)),
		Entry("it shrinks", attachedBefore, detachedBefore, newResizeCall(0, 1, 128, Succeeded), newResizeCall(2, 3, 96, Succeeded)),
		Entry("a killed call has its effect a quarter of an hour later", newCall(0, 1, "attach_disk", "a", Killed), newCall(2, 3, "get_disks", "a", No),
			newCall(900, 901, "get_disks", "a", No), newCall(902, 903, "get_disks", "a", Yes)),
	)

	DescribeTable("of a machine", func(possible bool, calls ...Call) {
		if possible {
			Expect(CheckVM(calls)).To(BeEmpty())
		} else {
			Expect(CheckVM(calls)).NotTo(BeEmpty())
		}
	},
		Entry("can be that it is made, made again, and deleted", true, newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "create_vm", "", Succeeded), newCall(4, 5, "delete_vm", "", Succeeded), newCall(6, 7, "has_vm", "", No)),
		Entry("can be that it is deleted while it is made", true, newCall(0, 9, "create_vm", "", Failed), newCall(1, 3, "delete_vm", "", Succeeded), newCall(20, 21, "has_vm", "", No)),
		Entry("cannot be that it is there before it is made", false, newCall(0, 1, "has_vm", "", Yes)),
		Entry("cannot be that it is lost", false, newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "set_vm_metadata", "", NotFound)),
		Entry("can be that two calls delete it at once", true, newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 5, "delete_vm", "", Succeeded), newCall(2, 5, "delete_vm", "", Succeeded)),
		Entry("cannot be that it is there once it is deleted", false, newCall(0, 1, "create_vm", "", Succeeded), newCall(2, 3, "delete_vm", "", Succeeded), newCall(4, 5, "has_vm", "", Yes)),
	)

	It("that cannot be is told up to the call that makes it so", func() {
		calls := []Call{newCall(6, 7, "detach_disk", "b", Succeeded), newCall(0, 1, "attach_disk", "a", Succeeded), newCall(2, 3, "attach_disk", "b", Succeeded), newCall(8, 9, "has_disk", "", Yes)}
		Expect(CheckDisk(calls, 64)).To(Equal("" +
			"     0.000s to      1.000s attach_disk d a: well\n" +
			"     2.000s to      3.000s attach_disk d b: well\n"))
	})

	It("is counted by method and outcome", func() {
		Expect(CountOutcomes([]Call{newCall(0, 1, "has_disk", "", Yes), newCall(0, 1, "has_disk", "", Yes), newCall(0, 1, "delete_disk", "", NotFound)})).
			To(Equal("delete_disk absent: 1\nhas_disk yes: 2\n"))
	})

	DescribeTable("knows an outcome by the type of error:", func(kind string, outcome Outcome) { Expect(OutcomeOf(kind)).To(Equal(outcome)) },
		Entry(nil, "", Succeeded),
		Entry(nil, "Bosh::Clouds::DiskNotFound", NotFound),
		Entry(nil, "Bosh::Clouds::VMNotFound", NotFound),
		Entry(nil, "Bosh::Clouds::DiskNotAttached", NotAttached),
		Entry(nil, "Bosh::Clouds::NotSupported", Refused),
		Entry(nil, "Bosh::Clouds::CloudError", Failed),
	)
})

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

// call is about the disk d or the machine m, and lasts these seconds.
func call(from, to int, method, vm string, outcome Outcome) Call {
	return Call{
		Method: method, About: "d", VM: vm, Outcome: outcome,
		Started: int64(time.Duration(from) * time.Second), Ended: int64(time.Duration(to) * time.Second),
	}
}

func resize(from, to, size int, outcome Outcome) Call {
	c := call(from, to, "resize_disk", "", outcome)
	c.SizeMiB = size
	return c
}

// The disk has been used before.
var attached, detached = call(-4, -3, "attach_disk", "a", Well), call(-2, -1, "detach_disk", "a", Well)

var _ = Describe("A history", func() {
	DescribeTable("of a disk can be that", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).To(BeEmpty())
	},
		Entry("one VM has it, and then another", call(0, 1, "attach_disk", "a", Well), call(2, 3, "detach_disk", "a", Well), call(4, 5, "attach_disk", "b", Well)),
		Entry("a call is repeated", call(0, 1, "attach_disk", "a", Well), call(2, 3, "attach_disk", "a", Well), call(4, 5, "detach_disk", "a", Well), call(6, 7, "detach_disk", "a", Apart)),
		Entry("a killed call has had its effect", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", Yes)),
		Entry("a killed call has had none", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", No)),
		Entry("a killed call has its effect a little later", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", No), call(4, 5, "get_disks", "a", Yes)),
		Entry("of two VMs at once the second waits its turn", call(0, 9, "attach_disk", "b", Well), call(0, 1, "attach_disk", "a", Well), call(2, 3, "detach_disk", "a", Well)),
		Entry("it is gone once it is deleted", call(0, 1, "delete_disk", "", Well), call(2, 3, "has_disk", "", No), call(4, 5, "attach_disk", "a", Absent), call(6, 7, "delete_disk", "", Absent)),
		Entry("two calls detach it at once, and both have done it", call(0, 1, "attach_disk", "a", Well), call(2, 5, "detach_disk", "a", Well), call(2, 5, "detach_disk", "a", Well)),
		Entry("it has no volume yet that could grow", resize(0, 1, 128, Refused), resize(2, 3, 64, Refused)),
		Entry("it has a volume of a call that came to nothing else", call(0, 1, "attach_disk", "a", Failed), call(20, 21, "get_disks", "a", No), resize(22, 23, 128, Well), call(24, 25, "get_disks", "a", No)),
		Entry("it is deleted while it is being attached, which get_disks has seen", call(0, 9, "attach_disk", "a", Lost), call(1, 3, "delete_disk", "", Well), call(2, 3, "get_disks", "a", Yes)),
		Entry("it is deleted while it is being attached, which is seen only as long as that lasts", call(0, 9, "attach_disk", "a", Failed),
			call(1, 3, "delete_disk", "", Well), call(4, 5, "get_disks", "a", Yes), call(20, 21, "get_disks", "a", No)),
		Entry("it has no volume yet when it is taken away from a call that attaches it", call(0, 9, "attach_disk", "a", Failed),
			call(1, 2, "get_disks", "a", Yes), call(3, 8, "detach_disk", "a", Well), resize(20, 21, 128, Refused)),
		Entry("it is deleted while two calls attach it, of which one is killed, and its attachment is taken away later", call(0, 1, "attach_disk", "a", Lost),
			call(0, 9, "attach_disk", "a", Absent), call(0, 2, "delete_disk", "", Well), call(3, 4, "has_disk", "", No), call(12, 13, "detach_disk", "a", Well)),
		Entry("it is deleted while it is being attached, as that call says", call(0, 9, "attach_disk", "a", Absent), call(1, 2, "get_disks", "a", Yes),
			call(0, 4, "delete_disk", "", Well), call(5, 6, "get_disks", "a", Yes), call(20, 21, "detach_disk", "a", Absent)),
		Entry("it is deleted while a second detach_disk waits for the first one's end", attached, call(0, 9, "detach_disk", "a", Well),
			call(2, 3, "delete_disk", "", Well), call(4, 5, "has_disk", "", No), call(6, 9, "detach_disk", "a", Well)),
		Entry("its attachment is taken away when it is deleted", call(0, 5, "attach_disk", "a", Failed), call(0, 1, "delete_disk", "", Well), call(2, 3, "has_disk", "", No), call(3, 5, "detach_disk", "a", Well), call(6, 7, "detach_disk", "a", Absent)),
		Entry("it grows, and does not shrink", attached, detached, resize(0, 1, 128, Well), resize(2, 3, 96, Refused), resize(4, 5, 128, Well)),
	)

	DescribeTable("of a disk cannot be that", func(calls ...Call) {
		Expect(CheckDisk(calls, 64)).NotTo(BeEmpty())
	},
		Entry("it is there once an attach_disk has said that it is not", call(0, 1, "attach_disk", "a", Absent), call(2, 3, "has_disk", "", Yes)),
		Entry("it is there while an attach_disk has said that it is not", call(0, 5, "attach_disk", "a", Absent), call(6, 7, "set_disk_metadata", "", Well)),
		Entry("two VMs have it", call(0, 1, "attach_disk", "a", Well), call(2, 3, "attach_disk", "b", Well)),
		Entry("it is deleted while a VM has it", call(0, 1, "attach_disk", "a", Well), call(2, 3, "delete_disk", "", Well)),
		Entry("it is taken from a VM long after it was deleted", attached, detached, call(0, 1, "delete_disk", "", Well), call(2, 3, "detach_disk", "a", Well)),
		Entry("it is deleted after a VM was given it by a call that was killed", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", Yes), call(4, 5, "delete_disk", "", Well)),
		Entry("another VM has it while the first may have it", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", Yes), call(4, 5, "attach_disk", "b", Well)),
		Entry("it grows while a VM has it", call(0, 1, "attach_disk", "a", Well), resize(2, 3, 128, Well)),
		Entry("it leaves its VM by itself", call(0, 1, "attach_disk", "a", Well), call(2, 3, "get_disks", "a", No)),
		Entry("it comes to a VM by itself", call(0, 1, "get_disks", "a", Yes)),
		Entry("it is taken from a VM that does not have it", call(0, 1, "attach_disk", "a", Well), call(2, 3, "detach_disk", "b", Well)),
		Entry("it does not grow, though it could", attached, detached, resize(0, 1, 128, Refused)),
		Entry("it comes back once it is deleted", call(0, 1, "delete_disk", "", Well), call(2, 3, "has_disk", "", Yes)),
		Entry("it shrinks", attached, detached, resize(0, 1, 128, Well), resize(2, 3, 96, Well)),
		Entry("a killed call has its effect a quarter of an hour later", call(0, 1, "attach_disk", "a", Lost), call(2, 3, "get_disks", "a", No),
			call(900, 901, "get_disks", "a", No), call(902, 903, "get_disks", "a", Yes)),
	)

	DescribeTable("of a machine", func(possible bool, calls ...Call) {
		if possible {
			Expect(CheckMachine(calls)).To(BeEmpty())
		} else {
			Expect(CheckMachine(calls)).NotTo(BeEmpty())
		}
	},
		Entry("can be that it is made, made again, and deleted", true, call(0, 1, "create_vm", "", Well), call(2, 3, "create_vm", "", Well), call(4, 5, "delete_vm", "", Well), call(6, 7, "has_vm", "", No)),
		Entry("can be that it is deleted while it is made", true, call(0, 9, "create_vm", "", Failed), call(1, 3, "delete_vm", "", Well), call(20, 21, "has_vm", "", No)),
		Entry("cannot be that it is there before it is made", false, call(0, 1, "has_vm", "", Yes)),
		Entry("cannot be that it is lost", false, call(0, 1, "create_vm", "", Well), call(2, 3, "set_vm_metadata", "", Absent)),
		Entry("can be that two calls delete it at once", true, call(0, 1, "create_vm", "", Well), call(2, 5, "delete_vm", "", Well), call(2, 5, "delete_vm", "", Well)),
		Entry("cannot be that it is there once it is deleted", false, call(0, 1, "create_vm", "", Well), call(2, 3, "delete_vm", "", Well), call(4, 5, "has_vm", "", Yes)),
	)

	It("that cannot be is told up to the call that makes it so", func() {
		calls := []Call{call(6, 7, "detach_disk", "b", Well), call(0, 1, "attach_disk", "a", Well), call(2, 3, "attach_disk", "b", Well), call(8, 9, "has_disk", "", Yes)}
		Expect(CheckDisk(calls, 64)).To(Equal("" +
			"     0.000s to      1.000s attach_disk d a: well\n" +
			"     2.000s to      3.000s attach_disk d b: well\n"))
	})

	It("is counted by method and outcome", func() {
		Expect(Counts([]Call{call(0, 1, "has_disk", "", Yes), call(0, 1, "has_disk", "", Yes), call(0, 1, "delete_disk", "", Absent)})).
			To(Equal("delete_disk absent: 1\nhas_disk yes: 2\n"))
	})

	DescribeTable("knows an outcome by the type of error:", func(kind string, outcome Outcome) { Expect(OutcomeOf(kind)).To(Equal(outcome)) },
		Entry(nil, "", Well),
		Entry(nil, "Bosh::Clouds::DiskNotFound", Absent),
		Entry(nil, "Bosh::Clouds::VMNotFound", Absent),
		Entry(nil, "Bosh::Clouds::DiskNotAttached", Apart),
		Entry(nil, "Bosh::Clouds::NotSupported", Refused),
		Entry(nil, "Bosh::Clouds::CloudError", Failed),
	)
})

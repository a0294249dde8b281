//go:build linux

package attach_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// failNth returns a system in which the n-th call fails, and which one that was.
func (f fixture) failNth(n int, errno unix.Errno) (sys system.System, failed *string) {
	failed, number := new(string), 0
	return f.failing(func(call, path string) error {
		number++
		if number != n {
			return nil
		}
		*failed = call + " " + path + ": " + errno.Error()
		return errno
	}), failed
}

var errnos = []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR}

// eachFault runs do with each call that it makes failing in turn, with each of the errors.
func (f fixture) eachFault(do func(sys system.System, fault string), errnos ...unix.Errno) {
	GinkgoHelper()
	for _, errno := range errnos {
		for n := 1; ; n++ {
			sys, failed := f.failNth(n, errno)
			do(sys, fmt.Sprintf("call %d: %s", n, errno))
			if *failed == "" {
				Expect(n).To(BeNumerically(">", 2), "the number of calls")
				break
			}
		}
	}
}

//go:build linux

package system_test

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestSystem(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node system")
}

// newSystem returns a system with an empty directory, a link to nothing, and a file of one page that starts with "text".
func newSystem() system.System {
	GinkgoHelper()
	s := system.System{Root: GinkgoT().TempDir()}
	Expect(os.Mkdir(s.Path("/directory"), 0o755)).To(Succeed())
	Expect(os.Symlink("nowhere", s.Path("/link"))).To(Succeed())
	Expect(os.WriteFile(s.Path("/file"), []byte("text"), 0o600)).To(Succeed())
	Expect(os.Truncate(s.Path("/file"), 4096)).To(Succeed())
	return s
}

// failing lets the first calls of this name fail.
func failing(name string, errno unix.Errno, times int) func(call, path string) error {
	return func(call, _ string) error {
		if call == name && times > 0 {
			times--
			return errno
		}
		return nil
	}
}

package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/clock"
)

var _ = Describe("A call from a host with a wrong clock", func() {
	if !clock.Supported {
		return
	}
	var env testEnv
	var fakeClock *clock.Clock
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		var err error
		fakeClock, err = clock.New(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		env.Director = env.adminDirector().WithWrapper(fakeClock.CommandPrefix()...)
	})

	It("succeeds with a clock that is half an hour slow or a day fast, while the certificates are valid by that clock", func(ctx context.Context) {
		for _, offset := range []time.Duration{-30 * time.Minute, 24 * time.Hour} {
			Expect(fakeClock.Set(offset)).To(Succeed())
			env.mustCall(ctx, "delete_vm", env.createVM(ctx, "one"))
		}
	})

	It("fails and reports the host's time if the server certificate is not yet valid or is expired by that clock", func(ctx context.Context) {
		for _, offset := range []time.Duration{-24 * time.Hour, 20 * 366 * 24 * time.Hour} {
			Expect(fakeClock.Set(offset)).To(Succeed())
			failed := env.mustFail(ctx, "has_vm", "none")
			Expect(failed.Type).To(Equal("Bosh::Clouds::CloudError"))
			Expect(failed.Message).To(And(ContainSubstring("current time "+time.Now().Add(offset).UTC().Format(time.DateOnly)), ContainSubstring("certificate")))
		}
	})
})

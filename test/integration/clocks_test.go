package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/clock"
)

var _ = Describe("A call from a machine whose clock is wrong", func() {
	if !clock.Works {
		return
	}
	var w world
	var its *clock.Clock
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		var err error
		its, err = clock.New(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		w.Director = w.asAdministrator().Under(its.Runs()...)
	})

	It("goes on half an hour before and a day after the right time, as long as no certificate minds", func(ctx context.Context) {
		for _, ahead := range []time.Duration{-30 * time.Minute, 24 * time.Hour} {
			Expect(its.Set(ahead)).To(Succeed())
			w.must(ctx, "delete_vm", w.createVM(ctx, "one"))
		}
	})

	It("is told at once the time that it has, when the API server's certificate has not begun by that, or has ended", func(ctx context.Context) {
		for _, ahead := range []time.Duration{-24 * time.Hour, 20 * 366 * 24 * time.Hour} {
			Expect(its.Set(ahead)).To(Succeed())
			failed := w.fails(ctx, "has_vm", "none")
			Expect(failed.Type).To(Equal("Bosh::Clouds::CloudError"))
			Expect(failed.Message).To(And(ContainSubstring("current time "+time.Now().Add(ahead).UTC().Format(time.DateOnly)), ContainSubstring("certificate")))
		}
	})
})

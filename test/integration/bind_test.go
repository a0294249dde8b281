package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A disk that appears as a directory", func() {
	var (
		w          world
		vm, bound  string
		properties = map[string]any{"attach": "bind"}
	)
	BeforeEach(func(ctx context.Context) {
		w, vm = newWorldWithVM(ctx)
		bound = w.must(ctx, "create_disk", 64, properties, nil).Text()
	})

	It("is attached and detached rightly by repeated calls when the first was killed after any request", func(ctx context.Context) {
		eachRequest(1, func(n int) bool {
			cut := w.killed(ctx, n, "attach_disk", vm, bound)
			Expect(w.must(ctx, "attach_disk", vm, bound).Result).To(MatchJSON(`{"path":"/dev/bosh/` + bound + `"}`))
			cut = w.killed(ctx, n, "detach_disk", vm, bound) || cut
			w.must(ctx, "attach_disk", vm, bound)
			w.must(ctx, "detach_disk", vm, bound)
			return cut
		})
	})

	It("is refused beside another disk, since the agent could not migrate between them, and so is the other", func(ctx context.Context) {
		device := w.createDisk(ctx)
		for _, each := range [][]string{{bound, device}, {device, bound}} {
			w.must(ctx, "attach_disk", vm, each[0])
			before := w.objects(ctx)
			refused := w.fails(ctx, "attach_disk", vm, each[1])
			Expect(refused.Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(refused.Message).To(And(ContainSubstring(bound), ContainSubstring(device), ContainSubstring("attach: bind")))
			Expect(w.objects(ctx)).To(ConsistOf(before))
			w.must(ctx, "detach_disk", vm, each[0])
		}
	})

	It("has a claim of its own size, without room for an image file", func(ctx context.Context) {
		claim, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, bound, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(claim.Spec.Resources.Requests.Storage().String()).To(Equal("64Mi"))
	})
})

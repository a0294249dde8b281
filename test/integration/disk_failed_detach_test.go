package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A disk that many detach_disk calls found in use", func() {
	It("can be detached after it is no longer in use, and its attachment Pod gets a limited number of exclusivity checks", long, func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		pods := cluster.CoreV1().Pods(env.namespace)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		for range 40 {
			Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres) has it mounted"))
		}
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"detach_disk": waitTimeout})
		for range 2 {
			Expect(shortTimeout.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("timed out detaching disk " + disk))
		}
		attachment, err := pods.Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(attachment.Spec.EphemeralContainers).To(HaveLen(40))

		Expect(env.annotatePod(ctx, disk+"-attachment", "test/stays", nil)).To(Succeed())
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})
})

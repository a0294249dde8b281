package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createQuota creates a ResourceQuota in the namespace, and waits until it takes effect.
func (env testEnv) createQuota(ctx context.Context, hard corev1.ResourceList) {
	GinkgoHelper()
	quotas := cluster.CoreV1().ResourceQuotas(env.namespace)
	_, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		found, err := quotas.Get(ctx, "small", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Status.Hard).NotTo(BeEmpty())
		g.Expect(found.Status.Used).To(HaveLen(len(hard)))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A namespace with a ResourceQuota", func() {
	resourceList := func(amounts ...string) corev1.ResourceList {
		hard := corev1.ResourceList{}
		for i := 0; i < len(amounts); i += 2 {
			hard[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
		}
		return hard
	}

	It("for requests and limits admits VMs and helper Pods", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.createQuota(ctx, resourceList("requests.cpu", "2", "requests.memory", "2Gi", "limits.cpu", "8", "limits.memory", "8Gi"))
		vm, disk := env.createVM(ctx, "one"), env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}) // creates a flush Pod
		env.mustCall(ctx, "detach_disk", vm, disk)
		env.mustCall(ctx, "update_disk", disk, 64, map[string]any{"storage_class": "growing"})
	})

	DescribeTable("that is used up makes attach_disk fail at once, and no objects remain:",
		func(ctx context.Context, hard corev1.ResourceList, message string) {
			env, vm, disk := newTestEnvWithDisk(ctx)
			previous := env.listObjects(ctx)
			env.createQuota(ctx, hard)
			proxy.Reset(nil)
			Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(ContainSubstring(message))
			Expect(countCreateRequests("pods")).To(BeNumerically("<=", 2), "one retry, in case the API server just started")
			Expect(env.listObjects(ctx)).To(ConsistOf(previous))
		},
		Entry("for Pods", resourceList("pods", "1"), "exceeded quota: small"),
		Entry("for memory limits", resourceList("limits.memory", "512Mi"), "exceeded quota: small"),
	)

	It("that is used up for PVCs makes create_disk fail at once", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.createQuota(ctx, resourceList("persistentvolumeclaims", "0"))
		proxy.Reset(nil)
		Expect(env.mustFail(ctx, "create_disk", 64, map[string]any{}, nil).Message).To(ContainSubstring("exceeded quota: small"))
		Expect(countCreateRequests("persistentvolumeclaims")).To(BeNumerically("<=", 2))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})
})

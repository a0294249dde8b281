package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// createQuota creates a ResourceQuota in the namespace, and waits until it takes effect. It also admits no ConfigMaps, which shows that the API
// server uses it: the quota's status does not.
func (env testEnv) createQuota(ctx context.Context, hard corev1.ResourceList) {
	GinkgoHelper()
	quotas := cluster.CoreV1().ResourceQuotas(env.namespace)
	hard[corev1.ResourceConfigMaps] = resource.MustParse("0")
	_, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		_, err := cluster.CoreV1().ConfigMaps(env.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "try"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(MatchError(ContainSubstring("exceeded quota: small")))
}

// removeAttachmentQuota deletes the ResourceQuota that admits attachment Pods, and waits until the API server no longer admits them.
func (env testEnv) removeAttachmentQuota(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.CoreV1().ResourceQuotas(env.namespace).Delete(ctx, attachmentQuota, metav1.DeleteOptions{})).To(Succeed())
	critical := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{
		PriorityClassName: manifest.AttachmentPriorityClass, Containers: []corev1.Container{{Name: "try", Image: "i:1"}}}}
	Eventually(func() error {
		_, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, critical, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(MatchError(ContainSubstring("insufficient quota")))
}

// attachmentQuota is the ResourceQuota in manifests/rbac.yaml.
const attachmentQuota = "bosh-attachments"

// waitForQuota waits until the ResourceQuota takes effect.
func waitForQuota(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := cluster.CoreV1().ResourceQuotas(namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Status.Hard).NotTo(BeEmpty())
		g.Expect(found.Status.Used).To(HaveLen(len(found.Spec.Hard)))
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

	It("only for other Pods than attachment Pods makes attach_disk fail at once, if the cluster requires one for their PriorityClass", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		env.removeAttachmentQuota(ctx)
		previous := env.listObjects(ctx)
		failed := env.mustFail(ctx, "attach_disk", vm, disk)
		Expect(failed.Message).To(SatisfyAll(ContainSubstring("insufficient quota to match these scopes"), HaveSuffix("[request-denied]")))
		Expect(env.listObjects(ctx)).To(ConsistOf(previous))
	})

	It("that is used up for PVCs makes create_disk fail at once", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.createQuota(ctx, resourceList("persistentvolumeclaims", "0"))
		proxy.Reset(nil)
		Expect(env.mustFail(ctx, "create_disk", 64, map[string]any{}, nil).Message).To(ContainSubstring("exceeded quota: small"))
		Expect(countCreateRequests("persistentvolumeclaims")).To(BeNumerically("<=", 2))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})
})

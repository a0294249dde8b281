//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A drain", Label("machines"), Serial, func() {
	It("takes one machine of a group at a time, with its disk, and leaves the other as it was", func(ctx context.Context) {
		w := newWorld(ctx)
		budget := map[string]any{"disruption_budget": map[string]any{"max_unavailable": 1}}
		disks := map[string]string{}
		machines := map[string]*machine{}
		for range 2 {
			m := w.createMachineIn(ctx, "web", budget)
			machines[m.cid], disks[m.cid] = m, w.createDisk(ctx, 64, map[string]any{})
			m.attach(ctx, disks[m.cid])
		}
		// staying returns the machines that no one has told to end.
		staying := func() (names []string) {
			pods, err := w.cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
			Expect(err).NotTo(HaveOccurred())
			for _, pod := range pods.Items {
				if pod.DeletionTimestamp == nil {
					names = append(names, pod.Name)
				}
			}
			return names
		}
		Eventually(func() int32 {
			found, err := w.cluster.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, "web", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return found.Status.DisruptionsAllowed
		}).Should(Equal(int32(1)))

		node := machines[staying()[0]].pod(ctx).Spec.NodeName
		drain := func(pods string) (string, error) {
			return w.embedded.ControlPlane.Kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
				"--pod-selector", pods, "--timeout", "30s")
		}
		DeferCleanup(func(ctx context.Context) {
			_, err := w.embedded.ControlPlane.Kubectl(ctx, "uncordon", node)
			Expect(err).NotTo(HaveOccurred())
		})
		out, err := drain("bosh.cloudfoundry.org/group=web")
		Expect(err).To(HaveOccurred(), "both machines were drained at once: %s", out)
		Expect(staying()).To(HaveLen(1))
		stays := machines[staying()[0]]
		Expect(w.attachment(ctx, disks[stays.cid]).DeletionTimestamp).To(BeNil())
		stays.run(ctx, "mountpoint -q /var/vcap/store && touch /var/vcap/store/here")
		for cid, disk := range disks {
			if cid != stays.cid {
				_, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
				Expect(err).To(MatchError(ContainSubstring("not found")), "its attachment went with it")
				_, err = w.Call(ctx, "delete_vm", cid)
				Expect(err).NotTo(HaveOccurred())
			}
		}

		_, err = w.embedded.ControlPlane.Kubectl(ctx, "uncordon", node)
		Expect(err).NotTo(HaveOccurred())
		next := w.createMachineIn(ctx, "web", budget)
		Eventually(func() error {
			_, err := drain("bosh.cloudfoundry.org/vm=" + stays.cid)
			return err
		}).Should(Succeed())
		Expect(staying()).To(ConsistOf(next.cid))
	}, NodeTimeout(longTest))
})

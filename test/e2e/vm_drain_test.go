//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A node drain", Label("vms", "extended"), Serial, func() {
	It("evicts one VM of a group at a time, with its attachment Pod, and leaves the other VM running", func(ctx context.Context) {
		env := newTestEnv(ctx)
		pdbProperties := map[string]any{"disruption_budget": map[string]any{"max_unavailable": 1}}
		disks := map[string]string{}
		vms := map[string]*testVM{}
		for range 2 {
			vm := env.createVMInGroup(ctx, "web", pdbProperties)
			vms[vm.cid], disks[vm.cid] = vm, env.createDisk(ctx, 64, map[string]any{})
			vm.attach(ctx, disks[vm.cid])
		}
		// runningVMs returns the VM Pods that are not being deleted.
		runningVMs := func() (names []string) {
			pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
			Expect(err).NotTo(HaveOccurred())
			for _, pod := range pods.Items {
				if pod.DeletionTimestamp == nil {
					names = append(names, pod.Name)
				}
			}
			return names
		}
		Eventually(func() int32 {
			pdb, err := env.cluster.PolicyV1().PodDisruptionBudgets(env.namespace).Get(ctx, "web", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return pdb.Status.DisruptionsAllowed
		}).Should(Equal(int32(1)))

		node := vms[runningVMs()[0]].pod(ctx).Spec.NodeName
		drain := func(podSelector string) (string, error) {
			return env.embedded.ControlPlane.Kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
				"--pod-selector", podSelector, "--timeout", "30s")
		}
		DeferCleanup(func(ctx context.Context) {
			_, err := env.embedded.ControlPlane.Kubectl(ctx, "uncordon", node)
			Expect(err).NotTo(HaveOccurred())
		})
		out, err := drain("bosh.cloudfoundry.org/group=web")
		Expect(err).To(HaveOccurred(), "both VMs were drained at the same time: %s", out)
		Expect(runningVMs()).To(HaveLen(1))
		remaining := vms[runningVMs()[0]]
		Expect(env.attachmentPod(ctx, disks[remaining.cid]).DeletionTimestamp).To(BeNil())
		remaining.run(ctx, "mountpoint -q /var/vcap/store && touch /var/vcap/store/marker")
		for cid, disk := range disks {
			if cid != remaining.cid {
				_, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
				Expect(err).To(MatchError(ContainSubstring("not found")), "the attachment Pod was not deleted with the VM Pod")
				_, err = env.Call(ctx, "delete_vm", cid)
				Expect(err).NotTo(HaveOccurred())
			}
		}

		_, err = env.embedded.ControlPlane.Kubectl(ctx, "uncordon", node)
		Expect(err).NotTo(HaveOccurred())
		next := env.createVMInGroup(ctx, "web", pdbProperties)
		Eventually(func() error {
			_, err := drain("bosh.cloudfoundry.org/vm=" + remaining.cid)
			return err
		}).Should(Succeed())
		Expect(runningVMs()).To(ConsistOf(next.cid))
	}, NodeTimeout(longTest))
})

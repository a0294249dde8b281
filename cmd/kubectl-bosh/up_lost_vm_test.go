package main_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("kubectl bosh up for a director with a VM", func() {
	const vmCID = "agent-of-the-director"
	var ws workspace
	BeforeEach(func() {
		ws = newWorkspaceWithCLI()
		Expect(ws.up()).To(gexec.Exit(0))
		ws.write("kubernetes/state.json", `{"director_id": "create-envs-own", "current_vm_cid": "`+vmCID+`"}`)
	})

	createVM := func(ctx context.Context) {
		GinkgoHelper()
		_, err := cluster.CoreV1().Pods(ws.namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: vmCID},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "vm", Image: "registry.example.com/stemcell"}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}

	It("does not recreate the VM while its Pod exists", func(ctx SpecContext) {
		createVM(ctx)
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(ws.read("calls")).NotTo(ContainSubstring("--recreate"))
	})

	DescribeTable("recreates a VM that does not run, also without changes of the manifest", func(ctx SpecContext, lose func(context.Context)) {
		lose(ctx)
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`VM +` + vmCID + ` does not run; create-env recreates it with the director's disk\n`))
		Expect(ws.read("calls")).To(MatchRegexp(`(?m)^--recreate$`))
	},
		Entry("because its Pod is gone", func(context.Context) {}),
		Entry("because its Pod is being deleted", func(ctx context.Context) {
			createVM(ctx)
			_, err := controlPlane.Kubectl(ctx, "annotate", "pod", vmCID, "--namespace", ws.namespace, "test/stays=yes")
			Expect(err).NotTo(HaveOccurred())
			_, err = controlPlane.Kubectl(ctx, "patch", "pod", vmCID, "--namespace", ws.namespace, "--patch", `{"metadata": {"finalizers": ["example.com/wait"]}}`)
			Expect(err).NotTo(HaveOccurred())
			Expect(cluster.CoreV1().Pods(ws.namespace).Delete(ctx, vmCID, metav1.DeleteOptions{})).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				_, err := controlPlane.Kubectl(ctx, "patch", "pod", vmCID, "--namespace", ws.namespace, "--patch", `{"metadata": {"finalizers": null}}`)
				Expect(err).NotTo(HaveOccurred())
			})
		}),
		Entry("because its Pod has failed, as after an eviction by the kubelet", func(ctx context.Context) {
			createVM(ctx)
			_, err := controlPlane.Kubectl(ctx, "patch", "pod", vmCID, "--namespace", ws.namespace, "--subresource", "status", "--patch",
				`{"status": {"phase": "Failed"}}`)
			Expect(err).NotTo(HaveOccurred())
		}),
	)

	It("prints the flag that recreates the VM with --dry-run", func() {
		session := ws.run("", "up", "--dry-run")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`bosh create-env (.*\n)+ +--recreate\n`))
	})
})

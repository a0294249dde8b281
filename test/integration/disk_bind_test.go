package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A disk with attach: bind", func() {
	var (
		env          testEnv
		vm, bindDisk string
		properties   = map[string]any{"attach": "bind"}
	)
	BeforeEach(func(ctx context.Context) {
		env, vm = newTestEnvWithVM(ctx)
		bindDisk = env.mustCall(ctx, "create_disk", 64, properties, nil).Text()
	})

	It("is attached and detached by retried calls after a call was killed at any request", func(ctx context.Context) {
		forEachRequest(1, func(n int) bool {
			interrupted := env.interruptCall(ctx, n, "attach_disk", vm, bindDisk)
			Expect(env.mustCall(ctx, "attach_disk", vm, bindDisk).Result).To(MatchJSON(`{"path":"/dev/bosh/` + bindDisk + `"}`))
			interrupted = env.interruptCall(ctx, n, "detach_disk", vm, bindDisk) || interrupted
			env.mustCall(ctx, "attach_disk", vm, bindDisk)
			env.mustCall(ctx, "detach_disk", vm, bindDisk)
			return interrupted
		})
	})

	// The director attaches two disks to migrate data, and the agent cannot migrate data to or from a directory.
	It("cannot be attached to a VM that has another disk, nor the other way around", func(ctx context.Context) {
		deviceDisk := env.createDisk(ctx)
		for _, order := range [][]string{{bindDisk, deviceDisk}, {deviceDisk, bindDisk}} {
			env.mustCall(ctx, "attach_disk", vm, order[0])
			previous := env.listObjects(ctx)
			failed := env.mustFail(ctx, "attach_disk", vm, order[1])
			Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(failed.Message).To(And(ContainSubstring(bindDisk), ContainSubstring(deviceDisk), ContainSubstring("attach: bind")))
			Expect(env.listObjects(ctx)).To(ConsistOf(previous))
			env.mustCall(ctx, "detach_disk", vm, order[0])
		}
	})

	It("has a PVC of exactly its size, without space for an image file", func(ctx context.Context) {
		pvc, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, bindDisk, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pvc.Spec.Resources.Requests.Storage().String()).To(Equal("64Mi"))
	})
})

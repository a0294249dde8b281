package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("A VM with an injected sidecar container", func() {
	It("is rebooted by a restart of only the VM container", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx, "one")
		pods := cluster.CoreV1().Pods(env.namespace)
		// The kubelet reports containers sorted by name.
		_, err := pods.Patch(ctx, vm, types.MergePatchType, []byte(`{"status": {"containerStatuses": [
			{"name": "a-proxy", "image": "x", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://proxy", "state": {"running": {}}},
			{"name": "vm", "image": "x", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://vm", "state": {"running": {}}}]}}`),
			metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
		watch, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + vm + "-reboot"})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		shortTimeout := env.directorWithTimeouts(map[string]any{"other": waitTimeout})
		_, err = shortTimeout.Call(ctx, "reboot_vm", vm) // no kubelet restarts a simulated VM
		Expect(err).NotTo(HaveOccurred())
		var event any
		Eventually(watch.ResultChan()).WithContext(ctx).Should(Receive(&event))
		Expect(event).To(HaveField("Object.Spec.Containers", ContainElement(HaveField("Command",
			HaveExactElements("/bosh-node", "vm", "reboot", "--vm", env.namespace+"/"+vm, "--container", "vm")))))
	})
})

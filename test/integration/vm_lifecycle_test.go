package integration

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A VM", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("is a Pod that owns the Secret with its agent settings", func(ctx context.Context) {
		vm := env.createVM(ctx, "one")
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/role", "vm"))
		secret, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", pod.UID)))
		Expect(secret.Data).To(HaveKey("settings.json"))
	})

	It("exists until it is deleted, and leaves no objects", func(ctx context.Context) {
		vm := env.createVM(ctx, "one")
		Expect(string(env.mustCall(ctx, "has_vm", vm).Result)).To(Equal("true"))
		env.mustCall(ctx, "delete_vm", vm)
		Expect(string(env.mustCall(ctx, "has_vm", vm).Result)).To(Equal("false"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
		Expect(env.mustFail(ctx, "delete_vm", vm).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("has the address of its manual network, and create_vm returns the network unchanged", func(ctx context.Context) {
		network := map[string]any{"default": map[string]any{"type": "manual", "ip": "10.9.8.7", "prefix": "32", "netmask": "255.255.255.0", "gateway": "10.9.8.1",
			"cloud_properties": map[string]any{"x": 1}, "dns": []any{"10.0.0.2"}, "default": []any{"dns", "gateway"}, "nic_group": "1"}}
		response := env.mustCall(ctx, "create_vm", "one", stemcellCID, map[string]any{}, network, []string{}, map[string]any{})
		sent, err := json.Marshal([]any{"agent-one", network})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Result).To(MatchJSON(sent))
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["10.9.8.7"]`))
	})

	It("is adopted by a retried create_vm, and replaced by a create_vm with other arguments", func(ctx context.Context) {
		vm := env.createVM(ctx, "one")
		first, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		env.createVM(ctx, "one")
		again, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(first.UID))

		env.mustCall(ctx, "create_vm", "one", stemcellCID, map[string]any{"cpu": "200m"}, dynamicNetwork(), []string{}, map[string]any{})
		other, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(other.UID).NotTo(Equal(first.UID))
		secret, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", other.UID)))
	})

	It("with termination_grace_period has time for drain scripts if Kubernetes deletes it, but not in delete_vm", func(ctx context.Context) {
		vm := env.createVMWithProperties(ctx, "one", map[string]any{"termination_grace_period": 600, "annotations": map[string]any{"test/stays": "yes"}}, nil)
		getPod := func() (*corev1.Pod, error) {
			return cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		}
		pod, err := getPod()
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.TerminationGracePeriodSeconds).To(HaveValue(Equal(int64(600))))
		preStop := pod.Spec.Containers[0].Lifecycle.PreStop.Exec.Command
		Expect(preStop[len(preStop)-2:]).To(Equal([]string{"--drain-seconds", "570"}))

		deleted := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(deleted)
			env.mustCall(ctx, "delete_vm", vm)
		}()
		Eventually(getPod).WithContext(ctx).Should(HaveField("DeletionGracePeriodSeconds", HaveValue(Equal(int64(30)))))
		Expect(env.annotatePod(ctx, vm, "test/stays", nil)).To(Succeed())
		Eventually(deleted).WithContext(ctx).Should(BeClosed())
	})

	It("has its metadata in labels if they are valid there, and all metadata in annotations", func(ctx context.Context) {
		vm := env.createVM(ctx, "one")
		env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0", "director": "d", "disk": "custom", "größe": "x"})
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/deployment", "cf"))
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/tag-disk", "custom"))
		Expect(pod.Labels).NotTo(HaveKey("bosh.cloudfoundry.org/name"))
		Expect(pod.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/name", "web/0"))
		Expect(pod.Annotations["bosh.cloudfoundry.org/metadata"]).To(ContainSubstring("größe"))
		Expect(env.mustFail(ctx, "set_vm_metadata", "agent-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("that cannot be scheduled is deleted, and the error quotes the scheduler", func(ctx context.Context) {
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"create_vm": waitTimeout})
		failed := shortTimeout.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{"node_selector": map[string]any{"no": "such"}}, dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.OkToRetry).To(BeTrue())
		Expect(failed.Message).To(ContainSubstring("didn't match Pod's node affinity/selector"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})
})

var _ = Describe("A disk", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) { env, vm, disk = newTestEnvWithDisk(ctx) })

	getDisks := func(ctx context.Context, vm string) string { return string(env.mustCall(ctx, "get_disks", vm).Result) }

	It("exists until it is deleted", func(ctx context.Context) {
		Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
		env.mustCall(ctx, "delete_disk", disk)
		Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("false"))
		Expect(env.mustFail(ctx, "delete_disk", disk).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	It("is attached and detached without a change of the VM Pod", func(ctx context.Context) {
		previous, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustCall(ctx, "attach_disk", vm, disk).Result).To(MatchJSON(`{"path":"/dev/bosh/` + disk + `"}`))
		Expect(getDisks(ctx, vm)).To(MatchJSON(`["` + disk + `"]`))
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(getDisks(ctx, vm)).To(MatchJSON(`[]`))
		after, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.ResourceVersion).To(Equal(previous.ResourceVersion))
	})

	It("that is attached again to the same VM has the same path, and nothing changes", func(ctx context.Context) {
		first := env.mustCall(ctx, "attach_disk", vm, disk)
		attachment, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustCall(ctx, "attach_disk", vm, disk).Result).To(Equal(first.Result))
		again, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.ResourceVersion).To(Equal(attachment.ResourceVersion))
	})

	It("that is attached to a VM cannot be attached to another VM, and the error names the first one", func(ctx context.Context) {
		other := env.createVM(ctx, "two")
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.mustFail(ctx, "attach_disk", other, disk).Message).To(ContainSubstring(vm))
		Expect(env.mustFail(ctx, "detach_disk", other, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		Expect(getDisks(ctx, vm)).To(ContainSubstring(disk))
	})

	It("that is in use cannot be detached, and the error names the process that uses it", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres)"))).To(Succeed())
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres)"))
		Expect(getDisks(ctx, vm)).To(ContainSubstring(disk))
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/busy", nil)).To(Succeed())
		env.mustCall(ctx, "detach_disk", vm, disk)
	})

	It("that is not attached or does not exist leads to an error of the right type", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		Expect(env.mustFail(ctx, "detach_disk", vm, "disk-none").Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(env.mustFail(ctx, "detach_disk", "agent-none", disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
		Expect(env.mustFail(ctx, "attach_disk", vm, "disk-none").Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(env.mustFail(ctx, "attach_disk", "agent-none", disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("that is being deleted does not exist for any method", func(ctx context.Context) {
		release := env.blockDeletion(ctx, pvcResource, disk)
		Expect(cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, disk, metav1.DeleteOptions{})).To(Succeed())
		Expect(env.mustCall(ctx, "has_disk", disk).Result).To(MatchJSON("false"))
		for _, arguments := range [][]any{
			{"attach_disk", vm, disk}, {"detach_disk", vm, disk}, {"resize_disk", disk, 128},
			{"set_disk_metadata", disk, map[string]any{"job": "web"}}, {"snapshot_disk", disk, map[string]any{}},
		} {
			method, _ := arguments[0].(string)
			Expect(env.mustFail(ctx, method, arguments[1:]...).Type).To(Equal("Bosh::Clouds::DiskNotFound"), method)
		}
		release()
		env.mustRetry(ctx, "DiskNotFound", "delete_disk", disk)
	})

	Describe("that is detached, while the kubelet removes its attachment Pod,", func() {
		var release func()
		detach := func(ctx context.Context, properties map[string]any) {
			GinkgoHelper()
			disk = env.createUsedDisk(ctx, vm, properties)
			env.mustCall(ctx, "attach_disk", vm, disk)
			release = env.blockDeletion(ctx, podResource, disk+"-attachment")
			env.mustCall(ctx, "detach_disk", vm, disk)
		}

		It("is detached for all methods", func(ctx context.Context) {
			detach(ctx, map[string]any{"storage_class": "growing"})
			env.mustCall(ctx, "resize_disk", disk, 128)
			Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON("[]"))
			Expect(env.mustFail(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
			release()
		})

		It("is not detached yet if its attachment Pod was killed, and may run again", func(ctx context.Context) {
			env.mustCall(ctx, "attach_disk", vm, disk)
			Expect(env.annotatePod(ctx, disk+"-attachment", "test/killed", new("yes"))).To(Succeed())
			release = env.blockDeletion(ctx, podResource, disk+"-attachment")
			shortTimeout := env
			shortTimeout.Director = env.directorWithTimeouts(map[string]any{"detach_disk": waitTimeout})
			Expect(shortTimeout.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("timed out detaching disk"))
			release()
		})

		It("is attached to another VM after that", func(ctx context.Context) {
			detach(ctx, map[string]any{})
			other := env.createVM(ctx, "two", disk)
			attach := startCall(ctx, env.Director, "attach_disk", other, disk)
			release()
			Expect((<-attach).Error).To(BeNil())
		})
	})

	It("that is attached cannot be deleted", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.mustFail(ctx, "delete_disk", disk).Message).To(ContainSubstring(vm))
		Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
	})

	It("remains after its VM is deleted, and can be attached to another one", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.mustCall(ctx, "delete_vm", vm)
		other := env.createVM(ctx, "two", disk)
		env.mustCall(ctx, "attach_disk", other, disk)
		Expect(getDisks(ctx, other)).To(ContainSubstring(disk))
	})

	It("has a PVC with space for an image file, or of exactly its size for a block volume", func(ctx context.Context) {
		block := env.mustCall(ctx, "create_disk", 64, map[string]any{"volume_mode": "Block"}, nil).Text()
		pvc, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, block, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pvc.Spec.Resources.Requests.Storage().String()).To(Equal("64Mi"))
		pvc, err = cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, disk, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pvc.Spec.Resources.Requests.Storage().Value()).To(BeNumerically(">", 64<<20))
		Expect(pvc.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "64"))
	})
})

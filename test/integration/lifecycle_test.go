package integration

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A machine", Label("each-version"), func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is a Pod that owns the Secret with its settings", func(ctx context.Context) {
		vm := w.createVM(ctx, "one")
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/role", "vm"))
		secret, err := cluster.CoreV1().Secrets(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", pod.UID)))
		Expect(secret.Data).To(HaveKey("settings.json"))
	})

	It("is there until it is deleted, and then leaves nothing", func(ctx context.Context) {
		vm := w.createVM(ctx, "one")
		Expect(string(w.must(ctx, "has_vm", vm).Result)).To(Equal("true"))
		w.must(ctx, "delete_vm", vm)
		Expect(string(w.must(ctx, "has_vm", vm).Result)).To(Equal("false"))
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
		Expect(w.fails(ctx, "delete_vm", vm).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("answers its CID alone in API version 1", func(ctx context.Context) {
		w.APIVersion = 1
		response := w.must(ctx, "create_vm", "one", stemcellCID, map[string]any{}, onDynamic(), []string{}, map[string]any{})
		Expect(response.Text()).To(Equal("agent-one"))
		disk := w.createDisk(ctx)
		Expect(string(w.must(ctx, "attach_disk", "agent-one", disk).Result)).To(Equal("null"))
	})

	It("has the address of its manual network, and answers the network unchanged", func(ctx context.Context) {
		network := map[string]any{"default": map[string]any{"type": "manual", "ip": "10.9.8.7", "prefix": "32", "netmask": "255.255.255.0", "gateway": "10.9.8.1",
			"cloud_properties": map[string]any{"x": 1}, "dns": []any{"10.0.0.2"}, "default": []any{"dns", "gateway"}, "nic_group": "1"}}
		response := w.must(ctx, "create_vm", "one", stemcellCID, map[string]any{}, network, []string{}, map[string]any{})
		sent, err := json.Marshal([]any{"agent-one", network})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Result).To(MatchJSON(sent))
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["10.9.8.7"]`))
	})

	It("is adopted when the same create_vm comes again, and replaced when another one does", func(ctx context.Context) {
		vm := w.createVM(ctx, "one")
		first, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		w.createVM(ctx, "one")
		again, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(first.UID))

		w.must(ctx, "create_vm", "one", stemcellCID, map[string]any{"cpu": "200m"}, onDynamic(), []string{}, map[string]any{})
		other, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(other.UID).NotTo(Equal(first.UID))
		secret, err := cluster.CoreV1().Secrets(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", other.UID)))
	})

	It("shows its metadata as labels where Kubernetes allows them, and all of it as annotations", func(ctx context.Context) {
		vm := w.createVM(ctx, "one")
		w.must(ctx, "set_vm_metadata", vm, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0", "director": "d", "disk": "custom", "größe": "x"})
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/deployment", "cf"))
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/tag-disk", "custom"))
		Expect(pod.Labels).NotTo(HaveKey("bosh.cloudfoundry.org/name"))
		Expect(pod.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/name", "web/0"))
		Expect(pod.Annotations["bosh.cloudfoundry.org/metadata"]).To(ContainSubstring("größe"))
		Expect(w.fails(ctx, "set_vm_metadata", "agent-none", map[string]any{}).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("that does not come up is removed, with the scheduler's reason in the error", func(ctx context.Context) {
		short := w
		short.Director = w.withTimeouts(map[string]any{"create_vm": "2s"})
		failed := short.fails(ctx, "create_vm", "one", stemcellCID, map[string]any{"node_selector": map[string]any{"no": "such"}}, onDynamic(), []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.OkToRetry).To(BeTrue())
		Expect(failed.Message).To(ContainSubstring("didn't match Pod's node affinity/selector"))
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
	})
})

var _ = Describe("A disk", Label("each-version"), func() {
	var (
		w        world
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) { w, vm, disk = newWorldWithDisk(ctx) })

	disks := func(ctx context.Context, vm string) string { return string(w.must(ctx, "get_disks", vm).Result) }

	It("is a claim that is there until it is deleted", func(ctx context.Context) {
		Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("true"))
		w.must(ctx, "delete_disk", disk)
		Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("false"))
		Expect(w.fails(ctx, "delete_disk", disk).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
	})

	It("appears in the machine and goes again, and the machine's Pod is never touched", func(ctx context.Context) {
		before, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.must(ctx, "attach_disk", vm, disk).Result).To(MatchJSON(`{"path":"/dev/bosh/` + disk + `"}`))
		Expect(disks(ctx, vm)).To(MatchJSON(`["` + disk + `"]`))
		w.must(ctx, "detach_disk", vm, disk)
		Expect(disks(ctx, vm)).To(MatchJSON(`[]`))
		after, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
	})

	It("attached twice to the same machine answers the same hint and changes nothing", func(ctx context.Context) {
		first := w.must(ctx, "attach_disk", vm, disk)
		attachment, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.must(ctx, "attach_disk", vm, disk).Result).To(Equal(first.Result))
		again, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.ResourceVersion).To(Equal(attachment.ResourceVersion))
	})

	It("attached to one machine is refused to another, by the first one's name", func(ctx context.Context) {
		other := w.createVM(ctx, "two")
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.fails(ctx, "attach_disk", other, disk).Message).To(ContainSubstring(vm))
		Expect(w.fails(ctx, "detach_disk", other, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		Expect(disks(ctx, vm)).To(ContainSubstring(disk))
	})

	It("that is in use is not detached, and the error names the user", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.annotate(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres)"))).To(Succeed())
		Expect(w.fails(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres)"))
		Expect(disks(ctx, vm)).To(ContainSubstring(disk))
		Expect(w.annotate(ctx, disk+"-attachment", "test/busy", nil)).To(Succeed())
		w.must(ctx, "detach_disk", vm, disk)
	})

	It("that is not attached, or not there, is answered with the right type", func(ctx context.Context) {
		Expect(w.fails(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
		Expect(w.fails(ctx, "detach_disk", vm, "disk-none").Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(w.fails(ctx, "detach_disk", "agent-none", disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
		Expect(w.fails(ctx, "attach_disk", vm, "disk-none").Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		Expect(w.fails(ctx, "attach_disk", "agent-none", disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("that is being deleted is not there for any method", func(ctx context.Context) {
		release := w.keep(ctx, claims, disk)
		w.Director = w.withTimeouts(map[string]any{"other": "1s"})
		w.fails(ctx, "delete_disk", disk) // has begun
		Expect(w.must(ctx, "has_disk", disk).Result).To(MatchJSON("false"))
		for _, arguments := range [][]any{
			{"attach_disk", vm, disk}, {"detach_disk", vm, disk}, {"resize_disk", disk, 128},
			{"set_disk_metadata", disk, map[string]any{"job": "web"}}, {"snapshot_disk", disk, map[string]any{}},
		} {
			method, _ := arguments[0].(string)
			Expect(w.fails(ctx, method, arguments[1:]...).Type).To(Equal("Bosh::Clouds::DiskNotFound"), method)
		}
		release()
		w.repeats(ctx, "DiskNotFound", "delete_disk", disk)
	})

	It("that is proven free is not attached for any method, though its attachment takes its time to end", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
		w.must(ctx, "attach_disk", vm, disk)
		release := w.keep(ctx, pods, disk+"-attachment")
		w.Director = w.withTimeouts(map[string]any{"detach_disk": "5s"})
		w.fails(ctx, "detach_disk", vm, disk) // waits for the end
		w.must(ctx, "resize_disk", disk, 128)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON("[]"))
		release()
		w.repeats(ctx, "DiskNotAttached", "detach_disk", vm, disk)
	})

	It("that is attached cannot be deleted", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		Expect(w.fails(ctx, "delete_disk", disk).Message).To(ContainSubstring(vm))
		Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("true"))
	})

	It("stays when its machine is deleted, and is free", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		w.must(ctx, "delete_vm", vm)
		other := w.createVM(ctx, "two", disk)
		w.must(ctx, "attach_disk", other, disk)
		Expect(disks(ctx, other)).To(ContainSubstring(disk))
	})

	It("makes the claim big enough for an image file, and exact for a block volume", func(ctx context.Context) {
		block := w.must(ctx, "create_disk", 64, map[string]any{"volume_mode": "Block"}, nil).Text()
		claim, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, block, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(claim.Spec.Resources.Requests.Storage().String()).To(Equal("64Mi"))
		claim, err = cluster.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, disk, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(claim.Spec.Resources.Requests.Storage().Value()).To(BeNumerically(">", 64<<20))
		Expect(claim.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/size-mib", "64"))
	})
})

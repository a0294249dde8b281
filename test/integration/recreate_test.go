package integration

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/director"
)

var _ = Describe("A VM with disk_strategy: recreate", func() {
	var (
		w        world
		vm, disk string
		clean    []string
	)
	pod := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		found, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return found
	}
	// gate keeps the Pods that are made from now on from getting a node.
	gate := func(ctx context.Context, gates string) {
		GinkgoHelper()
		patch := []byte(`{"template":{"spec":{"schedulingGates":` + gates + `}}}`)
		_, err := cluster.CoreV1().PodTemplates(w.namespace).Patch(ctx, vm, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx).of(kinds[" with disk_strategy: recreate"])
		vm, disk = w.createVM(ctx, "one"), w.createDisk(ctx)
		clean = w.objects(ctx)
	})

	It("gets a disk with a new Pod, on its node, with its labels, its claim and its address", func(ctx context.Context) {
		w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		before := pod(ctx)
		w.must(ctx, "attach_disk", vm, disk)
		after := pod(ctx)

		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(manifest.DiskCIDs(before.Spec)).To(BeEmpty())
		Expect(after.Spec.Containers[0].VolumeDevices).To(ConsistOf(corev1.VolumeDevice{Name: disk, DevicePath: "/dev/bosh/" + disk}))
		Expect(after.Spec.NodeName).To(Equal(before.Spec.NodeName))
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Labels).To(HaveKeyWithValue(manifest.Prefix+"job", "web"))
		Expect(after.Annotations).To(HaveKeyWithValue(manifest.AnnotationRequestedAddresses, before.Status.PodIP))
		Expect(after.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.PersistentVolumeClaim.ClaimName", vm+"-machine")))
		attachment, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(attachment.OwnerReferences).To(Equal(after.OwnerReferences))

		w.must(ctx, "attach_disk", vm, disk)
		Expect(pod(ctx).UID).To(Equal(after.UID), "an attached disk was attached again")
		w.must(ctx, "detach_disk", vm, disk)
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(BeEmpty())
		Expect(w.fails(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
	})

	It("is whole again after its Pod was taken away, whichever call comes next", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		for method, arguments := range map[string][]any{
			"has_vm": {vm}, "get_disks": {vm}, "set_vm_metadata": {vm, map[string]any{"job": "web"}}, "reboot_vm": {vm}, "attach_disk": {vm, disk},
		} {
			w.takeAway(ctx, vm)
			w.must(ctx, method, arguments...)
			Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(ConsistOf(disk), method)
		}
	})

	It("gets a disk once the Pod that another call has just made has found its node", func(ctx context.Context) {
		pods := cluster.CoreV1().Pods(w.namespace)
		gate(ctx, `[{"name":"test/wait"}]`)
		w.takeAway(ctx, vm)
		w.must(ctx, "has_vm", vm)
		gate(ctx, `null`)
		Expect(pod(ctx).Spec.NodeName).To(BeEmpty())

		attached := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(attached)
			w.must(ctx, "attach_disk", vm, disk)
		}()
		Consistently(attached, "1s").ShouldNot(BeClosed())
		_, err := pods.Patch(ctx, vm, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(attached).WithContext(ctx).Should(BeClosed())
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(ConsistOf(disk))
	})

	for method, arguments := range map[string]func() []any{
		"has_vm":      func() []any { return []any{vm} },
		"get_disks":   func() []any { return []any{vm} },
		"detach_disk": func() []any { return []any{vm, disk} },
	} {
		It("has its disk attached after a drain has taken both away, when "+method+" comes first", func(ctx context.Context) {
			w.must(ctx, "attach_disk", vm, disk)
			w.takeAway(ctx, vm)
			w.takeAway(ctx, disk+"-attachment")
			w.must(ctx, method, arguments()...)
			left := []string{disk}
			if method == "detach_disk" {
				left = nil
			}
			Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(Equal(left))
			Expect(w.objects(ctx)).To(HaveLen(len(clean) + len(left)))
		})
	}

	It("keeps its disk for itself after the disk's attachment was taken away", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		w.takeAway(ctx, disk+"-attachment")
		other := w.createVM(ctx, "two", disk)
		for method, arguments := range map[string][]any{
			"attach_disk": {other, disk}, "delete_disk": {disk}, "resize_disk": {disk, 128}, "update_disk": {disk, 64, map[string]any{"storage_class": "growing"}},
		} {
			Expect(w.fails(ctx, method, arguments...).Message).To(ContainSubstring("disk "+disk+" is attached to VM "+vm), method)
		}
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		w.must(ctx, "detach_disk", vm, disk)
		w.must(ctx, "attach_disk", other, disk)
	})

	It("is made again without the disk when it does not come up with it", func(ctx context.Context) {
		gate(ctx, `[{"name":"test/wait"}]`)
		hurried := w.withTimeouts(map[string]any{"attach_disk": "4s"})
		response, err := hurried.Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(ContainSubstring("did not come up again"))
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(BeEmpty())
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		Expect(w.objects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
	})

	It("comes back when another Pod has taken its place on a full node, and the call says why", func(ctx context.Context) {
		node := "seat-" + w.namespace
		bringNode(ctx, node)
		properties := maps.Clone(w.vm)
		maps.Copy(properties, on(node))
		w.must(ctx, "create_vm", "two", stemcellCID, properties, onDynamic(), []string{}, map[string]any{})
		vm = "agent-two"
		limitPods(ctx, node, 2)
		other := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other","namespace":"` + w.namespace + `"},"spec":{
			"nodeName":"` + node + `","tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"none"}]}}`
		ended := pod(ctx).UID
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if _, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{}); err != nil &&
				r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") {
				_ = plane.Apply(ctx, other)
			}
			next.ServeHTTP(rw, r)
		})
		hurried := w.withTimeouts(map[string]any{"attach_disk": "15s", "unschedulable": "3s"})
		response, err := hurried.Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(And(ContainSubstring("VM agent-two did not come up again"), ContainSubstring("Too many pods")))
		Expect(pod(ctx).UID).NotTo(Equal(ended))
		Expect(pod(ctx).Status.Phase).To(Equal(corev1.PodRunning))
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(BeEmpty())
	})

	It("is not touched by detach_disk while its node does not answer", func(ctx context.Context) {
		node := "recreate-" + w.namespace
		bringNode(ctx, node)
		properties := maps.Clone(w.vm)
		maps.Copy(properties, on(node))
		w.must(ctx, "create_vm", "lost", stemcellCID, properties, onDynamic(), []string{}, map[string]any{})
		vm = "agent-lost"
		w.must(ctx, "attach_disk", vm, disk)
		w.silence(ctx, node)
		w.declareNotReady(ctx, vm, disk+"-attachment")
		before := pod(ctx)
		Expect(w.fails(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("node " + node + " has not answered"))
		Expect(pod(ctx).UID).To(Equal(before.UID))
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(ConsistOf(disk))
		template, err := cluster.CoreV1().PodTemplates(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.DiskCIDs(template.Template.Spec)).To(ConsistOf(disk))
	})

	It("keeps its Service and its budgets while it has no Pod", func(ctx context.Context) {
		properties := behind(fixed(nil))
		maps.Copy(properties, w.vm)
		properties["disruption_budget"] = map[string]any{"max_unavailable": 1}
		w.must(ctx, "create_vm", "two", stemcellCID, properties, onDynamic(), []string{}, inGroup(group))
		for _, cid := range []string{vm, "agent-two"} {
			w.must(ctx, "set_vm_metadata", cid, map[string]any{"job": "web"})
		}
		w.takeAway(ctx, "agent-two")
		Expect(w.collect(ctx, director.UUID)).To(Equal([]string{"nothing is left over"}))
	})

	It("is rebooted with a new Pod that has its disks", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		before := pod(ctx)
		w.must(ctx, "reboot_vm", vm)
		Expect(pod(ctx).UID).NotTo(Equal(before.UID))
		Expect(manifest.DiskCIDs(pod(ctx).Spec)).To(ConsistOf(disk))
	})

	It("says so when the network plugin gives its new Pod another address", func(ctx context.Context) {
		patch := []byte(`{"metadata":{"annotations":{"` + manifest.AnnotationFirstPodAddresses + `":"10.0.0.1"}}}`)
		w.takeAway(ctx, vm)
		_, err := cluster.CoreV1().PodTemplates(w.namespace).Patch(ctx, vm, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.fails(ctx, "reboot_vm", vm).Message).To(ContainSubstring("had the address 10.0.0.1, and its new Pod has"))
	})

	It("refuses a disk that needs a loop device of the node, and one for a single Pod", func(ctx context.Context) {
		before := pod(ctx)
		for why, properties := range map[string]map[string]any{
			"image file": {}, "ReadWriteOncePod": {"volume_mode": "Block", "access_modes": []string{"ReadWriteOncePod"}},
		} {
			refused := w.must(ctx, "create_disk", 64, properties, nil).Text()
			failure := w.fails(ctx, "attach_disk", vm, refused)
			Expect(failure.Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(failure.Message).To(ContainSubstring(why))
		}
		Expect(pod(ctx).UID).To(Equal(before.UID))
	})

	It("goes with all that it was made from, but its disks", func(ctx context.Context) {
		w.must(ctx, "attach_disk", vm, disk)
		w.must(ctx, "delete_vm", vm)
		Eventually(w.objects).WithContext(ctx).Should(ConsistOf("PersistentVolumeClaim/" + disk))
		Expect(w.must(ctx, "has_vm", vm).Result).To(MatchJSON("false"))
		Expect(w.fails(ctx, "delete_vm", vm).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("leaves nothing when it cannot be created", func(ctx context.Context) {
		properties := map[string]any{"ephemeral_disk": 64, "disk_strategy": "recreate", "runtime_class": "absent"}
		Expect(w.fails(ctx, "create_vm", "two", stemcellCID, properties, onDynamic(), []string{}, map[string]any{}).Message).To(ContainSubstring("absent"))
		Eventually(func(g Gomega) {
			g.Expect(slices.ContainsFunc(w.objects(ctx), func(object string) bool { return strings.Contains(object, "agent-two") })).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
	})

	It("is collected, with all that belongs to it, when create_vm was cut short", func(ctx context.Context) {
		w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		w.must(ctx, "attach_disk", vm, disk)
		clean = w.objects(ctx)
		Expect(w.killed(ctx, 4, "create_vm", "two", stemcellCID, w.vm, onDynamic(), []string{}, map[string]any{})).To(BeTrue())
		Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ContainElement(
			And(ContainSubstring("PodTemplate "+w.namespace+"/agent-two"), ContainSubstring("set_vm_metadata was never called"))))
		w.collect(ctx, director.UUID, "-confirm")
		Eventually(w.objects).WithContext(ctx).Should(ConsistOf(clean))
	})

	It("is recreated with longer and longer pauses, when its node rejects each of its Pods at once", func(ctx context.Context) {
		rejects := func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
				next.ServeHTTP(rw, r)
				return
			}
			annotateNewPod(r, map[string]string{"test/hold": "the node has rejected it"})
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			if answer.Code == http.StatusCreated {
				w.end(ctx, vm)
			}
			maps.Copy(rw.Header(), answer.Header())
			rw.WriteHeader(answer.Code)
			_, _ = rw.Write(answer.Body.Bytes())
		}
		w.end(ctx, vm)
		w.Director = w.withTimeouts(map[string]any{"other": "3s"})
		proxy.Reset(rejects)
		w.fails(ctx, "get_disks", vm)
		Expect(tries("pods")).To(And(BeNumerically(">", 1), BeNumerically("<", 20)))
	})

	It("keeps the PodTemplate that a repeated create_vm has adopted, when the first one fails late", func(ctx context.Context) {
		create := []any{"two", stemcellCID, w.vm, onDynamic(), []string{}, map[string]any{}}
		creates, allow := held(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
		})
		late := begin(ctx, w.withTimeouts(map[string]any{"create_vm": "3s"}), "create_vm", create...)
		Eventually(creates).WithContext(ctx).Should(BeClosed(), "the first call has made the PodTemplate")
		direct := w
		direct.directly(ctx, "create_vm", create...)
		Expect((<-late).Error).NotTo(BeNil())
		allow()
		template, err := cluster.CoreV1().PodTemplates(w.namespace).Get(ctx, "agent-two", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(template.DeletionTimestamp).To(BeNil())
		Expect(w.must(ctx, "has_vm", "agent-two").Result).To(MatchJSON("true"))
	})
})

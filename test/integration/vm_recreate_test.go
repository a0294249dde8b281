package integration

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
)

var _ = Describe("A VM with disk_strategy: recreate", func() {
	var (
		env      testEnv
		vm, disk string
		baseline []string
	)
	getPod := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		found, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return found
	}
	// setSchedulingGates sets the scheduling gates of Pods that are created from now on.
	setSchedulingGates := func(ctx context.Context, gates string) {
		GinkgoHelper()
		patch := []byte(`{"template":{"spec":{"schedulingGates":` + gates + `}}}`)
		_, err := cluster.CoreV1().PodTemplates(env.namespace).Patch(ctx, vm, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx).withDiskStrategy(diskStrategies[recreateStrategy])
		vm, disk = env.createVM(ctx, "one"), env.createDisk(ctx)
		baseline = env.listObjects(ctx)
	})

	It("gets a disk with a new Pod that has the same node, labels, PVC and address", func(ctx context.Context) {
		env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		previous := getPod(ctx)
		env.mustCall(ctx, "attach_disk", vm, disk)
		after := getPod(ctx)

		Expect(after.UID).NotTo(Equal(previous.UID))
		Expect(manifest.DiskCIDs(previous.Spec)).To(BeEmpty())
		Expect(after.Spec.Containers[0].VolumeDevices).To(ConsistOf(corev1.VolumeDevice{Name: disk, DevicePath: "/dev/bosh/" + disk}))
		Expect(after.Spec.NodeName).To(Equal(previous.Spec.NodeName))
		Expect(after.Labels).To(Equal(previous.Labels))
		Expect(after.Labels).To(HaveKeyWithValue(manifest.Prefix+"job", "web"))
		Expect(after.Annotations).To(HaveKeyWithValue(manifest.AnnotationRequestedAddresses, previous.Status.PodIP))
		Expect(after.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.PersistentVolumeClaim.ClaimName", vm+"-ephemeral-disk")))
		attachment, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(attachment.OwnerReferences).To(Equal(after.OwnerReferences))

		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(getPod(ctx).UID).To(Equal(after.UID), "an attached disk requires no new Pod")
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(BeEmpty())
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
	})

	It("gets its Pod and its disk back by any call after its Pod was deleted", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		for method, arguments := range map[string][]any{
			"has_vm": {vm}, "get_disks": {vm}, "set_vm_metadata": {vm, map[string]any{"job": "web"}}, "reboot_vm": {vm}, "attach_disk": {vm, disk},
		} {
			env.deletePodAndWait(ctx, vm)
			env.mustCall(ctx, method, arguments...)
			Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(ConsistOf(disk), method)
		}
	})

	It("gets a disk after the Pod created by another call is scheduled", func(ctx context.Context) {
		pods := cluster.CoreV1().Pods(env.namespace)
		setSchedulingGates(ctx, `[{"name":"test/wait"}]`)
		env.deletePodAndWait(ctx, vm)
		env.mustCall(ctx, "has_vm", vm)
		setSchedulingGates(ctx, `null`)
		Expect(getPod(ctx).Spec.NodeName).To(BeEmpty())

		attached := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(attached)
			env.mustCall(ctx, "attach_disk", vm, disk)
		}()
		Consistently(attached, "1s").ShouldNot(BeClosed())
		_, err := pods.Patch(ctx, vm, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(attached).WithContext(ctx).Should(BeClosed())
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(ConsistOf(disk))
	})

	for method, arguments := range map[string]func() []any{
		"has_vm":      func() []any { return []any{vm} },
		"get_disks":   func() []any { return []any{vm} },
		"detach_disk": func() []any { return []any{vm, disk} },
	} {
		It("is restored by "+method+" after a drain deleted its Pod and the attachment Pod", func(ctx context.Context) {
			env.mustCall(ctx, "attach_disk", vm, disk)
			env.deletePodAndWait(ctx, vm)
			env.deletePodAndWait(ctx, disk+"-attachment")
			env.mustCall(ctx, method, arguments()...)
			remaining := []string{disk}
			if method == "detach_disk" {
				remaining = nil
			}
			Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(Equal(remaining))
			Expect(env.listObjects(ctx)).To(HaveLen(len(baseline) + len(remaining)))
		})
	}

	It("keeps its disk after the attachment Pod was deleted", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.deletePodAndWait(ctx, disk+"-attachment")
		other := env.createVM(ctx, "two", disk)
		for method, arguments := range map[string][]any{
			"attach_disk": {other, disk}, "delete_disk": {disk}, "resize_disk": {disk, 128}, "update_disk": {disk, 64, map[string]any{"storage_class": "growing"}},
		} {
			Expect(env.mustFail(ctx, method, arguments...).Message).To(ContainSubstring("disk "+disk+" is attached to VM "+vm), method)
		}
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		env.mustCall(ctx, "detach_disk", vm, disk)
		env.mustCall(ctx, "attach_disk", other, disk)
	})

	It("is recreated without the disk if it does not start with the disk", func(ctx context.Context) {
		patch := []byte(`{"template":{"metadata":{"annotations":{"test/waiting":"InvalidImageName","test/message":"invalid reference"}}}}`)
		_, err := cluster.CoreV1().PodTemplates(env.namespace).Patch(ctx, vm, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(And(
			ContainSubstring("did not start after its Pod was recreated"), ContainSubstring("invalid reference")))
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(BeEmpty())
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		Expect(env.listObjects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
	})

	It("starts again after another Pod used its capacity on a full node, and the error quotes the scheduler", func(ctx context.Context) {
		node := "full-" + env.namespace
		createNode(ctx, node)
		properties := maps.Clone(env.vmProperties)
		maps.Copy(properties, nodeProperties(node))
		env.mustCall(ctx, "create_vm", "two", stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{})
		vm = "agent-two"
		limitNodePods(ctx, node, 2)
		other := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other","namespace":"` + env.namespace + `"},"spec":{
			"nodeName":"` + node + `","tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"none"}]}}`
		previousUID := getPod(ctx).UID
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if _, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{}); err != nil &&
				r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") {
				_ = plane.Apply(ctx, other)
			}
			next.ServeHTTP(rw, r)
		})
		shortTimeout := env.directorWithTimeouts(map[string]any{"unschedulable": waitTimeout})
		response, err := shortTimeout.Call(ctx, "attach_disk", vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(And(ContainSubstring("VM agent-two did not start after its Pod was recreated"), ContainSubstring("Too many pods")))
		Expect(getPod(ctx).UID).NotTo(Equal(previousUID))
		Expect(getPod(ctx).Status.Phase).To(Equal(corev1.PodRunning))
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(BeEmpty())
	})

	It("is not changed by detach_disk while its node does not respond", func(ctx context.Context) {
		node := "recreate-" + env.namespace
		createNode(ctx, node)
		properties := maps.Clone(env.vmProperties)
		maps.Copy(properties, nodeProperties(node))
		env.mustCall(ctx, "create_vm", "lost", stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{})
		vm = "agent-lost"
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.markNodeUnreachable(ctx, node)
		env.markPodsNotReady(ctx, vm, disk+"-attachment")
		previous := getPod(ctx)
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("node " + node + " has not reported"))
		Expect(getPod(ctx).UID).To(Equal(previous.UID))
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(ConsistOf(disk))
		template, err := cluster.CoreV1().PodTemplates(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.DiskCIDs(template.Template.Spec)).To(ConsistOf(disk))
	})

	It("keeps its Service and its PodDisruptionBudgets while it has no Pod", func(ctx context.Context) {
		properties := servicesProperties(namedService(nil))
		maps.Copy(properties, env.vmProperties)
		properties["disruption_budget"] = map[string]any{"max_unavailable": 1}
		env.mustCall(ctx, "create_vm", "two", stemcellCID, properties, dynamicNetwork(), []string{}, groupEnv(groupName))
		for _, cid := range []string{vm, "agent-two"} {
			env.mustCall(ctx, "set_vm_metadata", cid, map[string]any{"job": "web"})
		}
		env.deletePodAndWait(ctx, "agent-two")
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
	})

	It("is rebooted with a new Pod that has its disks", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		previous := getPod(ctx)
		env.mustCall(ctx, "reboot_vm", vm)
		Expect(getPod(ctx).UID).NotTo(Equal(previous.UID))
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(ConsistOf(disk))
	})

	It("makes the call fail if the network plugin assigns another address to the new Pod", func(ctx context.Context) {
		patch := []byte(`{"metadata":{"annotations":{"` + manifest.AnnotationFirstPodAddresses + `":"10.0.0.1"}}}`)
		env.deletePodAndWait(ctx, vm)
		_, err := cluster.CoreV1().PodTemplates(env.namespace).Patch(ctx, vm, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustFail(ctx, "reboot_vm", vm).Message).To(ContainSubstring("had address 10.0.0.1, but its new Pod has"))
	})

	It("gets a Filesystem disk as a directory, and rejects a disk that other VMs have as an image file", func(ctx context.Context) {
		create := func() string { return env.mustCall(ctx, "create_disk", 64, map[string]any{}, nil).Text() }
		directory, image := create(), create()
		env.mustCall(ctx, "attach_disk", vm, directory)
		Expect(getPod(ctx).Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{Name: directory, MountPath: "/dev/bosh/" + directory}))
		env.mustCall(ctx, "detach_disk", vm, directory)

		other := env.withDiskStrategy(diskStrategies[""]).createVM(ctx, "two")
		env.mustCall(ctx, "attach_disk", other, image)
		env.mustCall(ctx, "detach_disk", other, image)
		previous := getPod(ctx)
		for target, rejected := range map[string]string{vm: image, other: directory} {
			Expect(env.mustFail(ctx, "attach_disk", target, rejected).Type).To(Equal("Bosh::Clouds::NotSupported"))
		}
		Expect(getPod(ctx).UID).To(Equal(previous.UID))
	})

	It("is deleted with all its objects, except for its disks", func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.mustCall(ctx, "delete_vm", vm)
		Eventually(env.listObjects).WithContext(ctx).Should(ConsistOf("PersistentVolumeClaim/" + disk))
		Expect(env.mustCall(ctx, "has_vm", vm).Result).To(MatchJSON("false"))
		Expect(env.mustFail(ctx, "delete_vm", vm).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("leaves no objects if it cannot be created", func(ctx context.Context) {
		properties := map[string]any{"ephemeral_disk": 64, "disk_strategy": "recreate", "runtime_class": "absent"}
		Expect(env.mustFail(ctx, "create_vm", "two", stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{}).Message).To(ContainSubstring("absent"))
		Eventually(func(g Gomega) {
			g.Expect(slices.ContainsFunc(env.listObjects(ctx), func(object string) bool { return strings.Contains(object, "agent-two") })).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
	})

	It("is deleted by -collect, with all its objects, after an interrupted create_vm", func(ctx context.Context) {
		env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		env.mustCall(ctx, "attach_disk", vm, disk)
		baseline = env.listObjects(ctx)
		Expect(env.interruptCall(ctx, 4, "create_vm", "two", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
		Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ContainElement(
			And(ContainSubstring("PodTemplate "+env.namespace+"/agent-two"), ContainSubstring("set_vm_metadata was never called"))))
		env.runCollect(ctx, director.UUID, "-confirm")
		Eventually(env.listObjects).WithContext(ctx).Should(ConsistOf(baseline))
	})

	It("is recreated with increasing pauses if its node rejects each Pod at once", func(ctx context.Context) {
		var handlers sync.WaitGroup
		rejectPods := func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			handlers.Add(1)
			defer handlers.Done()
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
				next.ServeHTTP(rw, r)
				return
			}
			annotateNewPod(r, map[string]string{"test/hold": "because the node rejects the Pod"})
			response := httptest.NewRecorder()
			next.ServeHTTP(response, r)
			if response.Code == http.StatusCreated {
				env.markEvicted(ctx, vm)
			}
			maps.Copy(rw.Header(), response.Header())
			rw.WriteHeader(response.Code)
			_, _ = rw.Write(response.Body.Bytes())
		}
		env.markEvicted(ctx, vm)
		env.Director = env.directorWithTimeouts(map[string]any{"other": waitTimeout})
		proxy.Reset(rejectPods)
		env.mustFail(ctx, "get_disks", vm)
		Expect(countCreateRequests("pods")).To(And(BeNumerically(">", 1), BeNumerically("<", 40)), "without pauses it would be hundreds")
		proxy.Reset(nil)
		handlers.Wait() // the failed call may have left a request
	})

	It("does not get a disk by a late attach_disk after the disk was attached to another VM", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, nil)
		other := env.createVM(ctx, "two", disk) // on the node with the volume
		patchArrived, allow := holdRequests(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/podtemplates/"+vm)
		})
		late := startCall(ctx, env.Director, "attach_disk", vm, disk)
		Eventually(patchArrived).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "detach_disk", vm, disk)
		env.mustCallAsAdmin(ctx, "attach_disk", other, disk)
		allow()
		Expect((<-late).Error).To(HaveField("Message", ContainSubstring("was detached by a concurrent call")))
		env.mustCall(ctx, "reboot_vm", vm)
		Expect(manifest.DiskCIDs(getPod(ctx).Spec)).To(BeEmpty())
	})

	It("keeps the PodTemplate adopted by a retried create_vm when the first one fails", func(ctx context.Context) {
		arguments := []any{"two", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{}}
		createStarted, allow := holdRequests(func(_ int, r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
		})
		late := startCall(ctx, env.directorWithTimeouts(map[string]any{"create_vm": waitTimeout}), "create_vm", arguments...)
		Eventually(createStarted).WithContext(ctx).Should(BeClosed(), "the first call created the PodTemplate")
		env.mustCallAsAdmin(ctx, "create_vm", arguments...)
		Expect((<-late).Error).NotTo(BeNil())
		allow()
		template, err := cluster.CoreV1().PodTemplates(env.namespace).Get(ctx, "agent-two", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(template.DeletionTimestamp).To(BeNil())
		Expect(env.mustCall(ctx, "has_vm", "agent-two").Result).To(MatchJSON("true"))
	})
})

package integration

import (
	"context"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
)

var _ = Describe("A disk in use with an attachment Pod that was", func() {
	for reason, lose := range map[string]func(ctx context.Context, env testEnv, attachmentPod string){
		"deleted": func(ctx context.Context, env testEnv, attachmentPod string) { env.deletePodAndWait(ctx, attachmentPod) },
		"evicted": func(ctx context.Context, env testEnv, attachmentPod string) { env.markEvicted(ctx, attachmentPod) },
	} {
		Describe(reason, func() { describeLostAttachment(lose) })
		Describe(reason+", for detach_disk,", func() { describeDetachWithLostAttachment(lose) })
	}
})

// describeLostAttachment describes a disk in use after lose was called with its attachment Pod.
func describeLostAttachment(lose func(ctx context.Context, env testEnv, attachmentPod string)) {
	var (
		env      testEnv
		vm, disk string
	)
	attachmentPod := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		return nilIfNotFound(cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{}))
	}
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		lose(ctx, env, disk+"-attachment")
	})

	It("stays attached to its VM", func(ctx context.Context) {
		other := env.createVM(ctx, "two", disk)
		for method, arguments := range map[string][]any{
			"attach_disk": {other, disk}, "delete_disk": {disk}, "resize_disk": {disk, 128}, "update_disk": {disk, 64, toBlock},
		} {
			Expect(env.mustFail(ctx, method, arguments...).Message).To(ContainSubstring("disk "+disk+" is attached to VM "+vm), method)
		}
		Expect(attachmentPod(ctx)).To(Or(BeNil(), HaveField("Status.Phase", corev1.PodFailed)))
	})

	It("gets a new attachment Pod from get_disks", func(ctx context.Context) {
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + disk + `"]`))
		Expect(attachmentPod(ctx)).To(And(HaveField("Labels", HaveKeyWithValue(manifest.LabelVM, vm)), Not(HaveField("Status.Phase", corev1.PodFailed))))
	})

	It("can be detached, after an exclusivity check, and then attached to another VM", func(ctx context.Context) {
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		Expect(env.getPVC(ctx, disk).Labels).NotTo(HaveKey(manifest.LabelVM))
		env.mustCall(ctx, "attach_disk", env.createVM(ctx, "two", disk), disk)
	})

	It("is listed by -collect, which attaches it again", func(ctx context.Context) {
		env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
		Expect(env.runCollect(ctx, director.UUID)).To(ContainElement(And(ContainSubstring(disk), ContainSubstring(vm), ContainSubstring("would be attached again"))))
		env.runCollect(ctx, director.UUID, "-confirm")
		Expect(attachmentPod(ctx)).To(And(Not(BeNil()), Not(HaveField("Status.Phase", corev1.PodFailed))))
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
	})

	It("is free after its VM is deleted", func(ctx context.Context) {
		env.mustCall(ctx, "delete_vm", vm)
		env.mustCall(ctx, "delete_disk", disk)
	})

	It("is free after its VM was evicted", func(ctx context.Context) {
		env.markEvicted(ctx, vm)
		env.mustCall(ctx, "attach_disk", env.createVM(ctx, "two", disk), disk)
	})
}

// describeDetachWithLostAttachment describes detach_disk for a disk in use, after lose was called with its attachment Pod.
func describeDetachWithLostAttachment(lose func(ctx context.Context, env testEnv, attachmentPod string)) {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		lose(ctx, env, disk+"-attachment")
	})

	It("is not attached again by a detach_disk while another one detaches it", func(ctx context.Context) {
		listed, allow := holdRequests(func(_ int, r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pods") })
		first := startCall(ctx, env.Director, "detach_disk", vm, disk)
		Eventually(listed).WithContext(ctx).Should(BeClosed())
		env.mustCallAsAdmin(ctx, "detach_disk", vm, disk)
		allow()
		Expect((<-first).Error).To(Or(BeNil(), HaveField("Type", "Bosh::Clouds::DiskNotAttached")))
		Expect(proxy.Requests()).NotTo(ContainElement(MatchRegexp("^(POST|PATCH) .*/(pods|persistentvolumeclaims)(/|$)")))
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	// attachAgain lets get_disks create an attachment Pod that does not start, because it has these annotations.
	attachAgain := func(ctx context.Context, annotations map[string]string) {
		GinkgoHelper()
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			annotateNewPod(r, annotations)
			next.ServeHTTP(rw, r)
		})
		env.mustCall(ctx, "get_disks", vm)
		proxy.Reset(nil)
	}

	It("is not detached without an exclusivity check while its new attachment Pod has not started", func(ctx context.Context) {
		attachAgain(ctx, map[string]string{"test/hold": "yes"})
		Expect(env.detachCountingChecks(ctx, vm, disk, "test/hold")).To(Equal(1))
	})

	It("is not detached without an exclusivity check if its new attachment Pod was deleted before it started", func(ctx context.Context) {
		attachAgain(ctx, map[string]string{"test/hold": "yes", "test/stays": "yes"})
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(env.detachCountingChecks(ctx, vm, disk, "test/stays")).To(Equal(1))
	})
}

// detachCountingChecks detaches the disk, and returns the number of exclusivity checks. When detach_disk waits for the attachment Pod, this
// annotation of the Pod is removed.
func (env testEnv) detachCountingChecks(ctx context.Context, vm, disk, annotation string) (checks int) {
	GinkgoHelper()
	var once sync.Once
	proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/ephemeralcontainers") {
			checks++
		}
		if r.URL.Query().Get("watch") != "" {
			once.Do(func() { Expect(env.annotatePod(ctx, disk+"-attachment", annotation, nil)).To(Succeed()) })
		}
		next.ServeHTTP(rw, r)
	})
	env.mustCall(ctx, "detach_disk", vm, disk)
	return checks
}

var _ = Describe("An attachment Pod that another client is deleting", func() {
	var (
		env      testEnv
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env, vm, disk = newTestEnvWithAttachedDisk(ctx)
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
	})
	// The attachment Pod exits when detach_disk waits for it.
	detachCountingChecks := func(ctx context.Context) (checks int) {
		GinkgoHelper()
		checks = env.detachCountingChecks(ctx, vm, disk, "test/stays")
		Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
		return checks
	}

	It("makes an exclusivity check unnecessary when it exits", func(ctx context.Context) {
		Expect(detachCountingChecks(ctx)).To(BeZero())
	})

	It("requires an exclusivity check with a new attachment Pod if it was killed", func(ctx context.Context) {
		Expect(env.annotatePod(ctx, disk+"-attachment", "test/killed", new("yes"))).To(Succeed())
		Expect(detachCountingChecks(ctx)).To(Equal(1))
	})

	It("does not block an attach_disk to the same VM while the disk is in use", long, func(ctx context.Context) {
		env.mustCall(ctx, "attach_disk", vm, disk)
		Expect(env.getPVC(ctx, disk).Labels).To(HaveKeyWithValue(manifest.LabelVM, vm))
	})

	It("prevents the deletion of the disk", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "delete_disk", disk).Message).To(ContainSubstring("disk " + disk + " is attached to VM " + vm))
		Expect(env.getPVC(ctx, disk).DeletionTimestamp).To(BeNil())
	})
})

var _ = Describe("A disk that is deleted and attached at the same time", func() {
	It("is not deleted after it was attached", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		admin := env.adminDirector()
		var once sync.Once
		proxy.Reset(func(_ int, rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodDelete {
				once.Do(func() {
					response, err := admin.Call(ctx, "attach_disk", vm, disk)
					Expect(err).NotTo(HaveOccurred())
					Expect(response.Error).To(BeNil())
				})
			}
			next.ServeHTTP(rw, r)
		})
		Expect(env.mustFail(ctx, "delete_disk", disk).Message).To(ContainSubstring("disk " + disk + " is attached to VM " + vm))
		Expect(env.getPVC(ctx, disk).DeletionTimestamp).To(BeNil())
	})
})

var _ = Describe("A disk for a VM on a node without capacity for another Pod", func() {
	It("makes attach_disk fail at once, and the error quotes the scheduler, which preempts no VM", long, func(ctx context.Context) {
		node := "full"
		createNode(ctx, node)
		env := newTestEnv(ctx)
		env.mustCall(ctx, "create_vm", "one", stemcellCID, nodeProperties(node), dynamicNetwork(), []string{}, map[string]any{})
		disk := env.createDisk(ctx)
		limitNodePods(ctx, node, 1)
		Expect(env.mustFail(ctx, "attach_disk", "agent-one", disk).Message).To(And(ContainSubstring("did not start: the VM's node has no capacity: "), ContainSubstring("Too many pods")))
		Expect(env.listObjects(ctx)).NotTo(ContainElement("Pod/" + disk + "-attachment"))
		Expect(env.preemptedPods(ctx)).To(BeEmpty())
	})
})

// preemptedPods returns the names of Pods in the namespace that the scheduler preempted.
func (env testEnv) preemptedPods(ctx context.Context) (names []string) {
	GinkgoHelper()
	events, err := cluster.CoreV1().Events(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Preempted"})
	Expect(err).NotTo(HaveOccurred())
	for _, event := range events.Items {
		names = append(names, event.InvolvedObject.Name)
	}
	return names
}

var _ = Describe("A Pod with a higher priority than a VM, on the full node of the VM,", func() {
	It("preempts the VM Pod, and not its attachment Pod", func(ctx context.Context) {
		Expect(plane.Apply(ctx, `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"important"},"value":1000}`)).To(Succeed())
		node := "preempting"
		createNode(ctx, node)
		env := newTestEnv(ctx)
		env.mustCall(ctx, "create_vm", "one", stemcellCID, nodeProperties(node), dynamicNetwork(), []string{}, map[string]any{})
		disk := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", "agent-one", disk)
		limitNodePods(ctx, node, 2)

		Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other","namespace":"`+env.namespace+`"},"spec":{
			"priorityClassName":"important","nodeSelector":{"test/name":"`+node+`"},"tolerations":[{"operator":"Exists"}],
			"containers":[{"name":"c","image":"none"}]}}`)).To(Succeed())
		Eventually(env.preemptedPods).WithContext(ctx).Should(Equal([]string{"agent-one"}))
	})
})

var _ = Describe("An attachment Pod that was killed", func() {
	It("runs again before delete_vm deletes it, so that it can release the node's devices", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithAttachedDisk(ctx)
		env.setCrashLoopBackOff(ctx, disk+"-attachment", 137)
		watches, allow := holdRequests(func(_ int, r *http.Request) bool { return r.URL.Query().Get("watch") != "" })
		deletion := startCall(ctx, env.Director, "delete_vm", vm)
		Eventually(watches).WithContext(ctx).Should(BeClosed())
		Expect(proxy.Requests()).NotTo(ContainElement(HavePrefix("DELETE")), "before the attachment Pod runs")
		env.setContainerRunning(ctx, disk+"-attachment")
		allow()
		Expect((<-deletion).Error).To(BeNil())
	})
})

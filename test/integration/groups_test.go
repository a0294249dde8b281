package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
)

const group = "director-cf-web"

// inGroup is an env as the director sends it.
func inGroup(name string) map[string]any {
	return map[string]any{"bosh": map[string]any{"group": name}}
}

func oneAway() map[string]any {
	return map[string]any{"disruption_budget": map[string]any{"max_unavailable": 1}}
}

// budget returns the disruption budget, or nil when there is none.
func (w world) budget(ctx context.Context, name string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	return orNil(cluster.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, name, metav1.GetOptions{}))
}

// least is how many machines of the group must stay.
func (w world) least(ctx context.Context) int {
	GinkgoHelper()
	return w.budget(ctx, group).Spec.MinAvailable.IntValue()
}

// evict does what a drain does.
func (w world) evict(ctx context.Context, pod string) error {
	return cluster.CoreV1().Pods(w.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
}

var _ = Describe("An instance group", func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is spread softly by default, and has no budget that nobody asked for", func(ctx context.Context) {
		vm := w.create(ctx, "one", map[string]any{}, inGroup(group))
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/group", group))
		Expect(pod.Spec.TopologySpreadConstraints).To(HaveLen(2))
		Expect(w.budget(ctx, group)).To(BeNil())
		vm = w.create(ctx, "two", map[string]any{"topology_spread": []any{}}, inGroup(group))
		pod, err = cluster.CoreV1().Pods(w.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.TopologySpreadConstraints).To(BeEmpty())
	})

	It("with a budget loses one machine at a time to a drain, and no attachment before its machine", func(ctx context.Context) {
		for _, agent := range []string{"one", "two", "three"} {
			w.create(ctx, agent, oneAway(), inGroup(group))
		}
		disk := w.createDisk(ctx)
		w.must(ctx, "attach_disk", "agent-one", disk)
		Expect(w.least(ctx)).To(Equal(2))
		Eventually(func() int32 { return w.budget(ctx, group).Status.DisruptionsAllowed }).Should(Equal(int32(1)))

		Eventually(func() int32 { return w.budget(ctx, group+"-disks").Status.CurrentHealthy }).Should(Equal(int32(1)))
		Expect(apierrors.IsTooManyRequests(w.evict(ctx, disk+"-attachment"))).To(BeTrue())
		Expect(w.evict(ctx, "agent-one")).To(Succeed())
		Expect(apierrors.IsTooManyRequests(w.evict(ctx, "agent-two"))).To(BeTrue())
		Eventually(func() error {
			_, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
			return err
		}).Should(Satisfy(apierrors.IsNotFound), "the attachment goes with its machine")

		// The resurrector replaces it; only then may the next one go.
		response, err := w.Call(ctx, "delete_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(Or(BeNil(), HaveField("Type", "Bosh::Clouds::VMNotFound")))
		Expect(apierrors.IsTooManyRequests(w.evict(ctx, "agent-two"))).To(BeTrue())
		w.create(ctx, "four", oneAway(), inGroup(group))
		Expect(w.least(ctx)).To(Equal(2))
		Eventually(w.evict).WithContext(ctx).WithArguments("agent-two").Should(Succeed())
	})

	It("has a budget that grows and shrinks with it, and goes with its last machine", func(ctx context.Context) {
		var wait sync.WaitGroup
		for n := range 5 {
			wait.Go(func() {
				defer GinkgoRecover()
				w.create(ctx, fmt.Sprintf("vm-%d", n), oneAway(), inGroup(group))
			})
		}
		wait.Wait()
		Expect(w.least(ctx)).To(Equal(4))
		w.create(ctx, "other", oneAway(), inGroup("another"))
		for n := range 3 {
			wait.Go(func() {
				defer GinkgoRecover()
				w.must(ctx, "delete_vm", fmt.Sprintf("agent-vm-%d", n))
			})
		}
		wait.Wait()
		Expect(w.least(ctx)).To(Equal(1))
		w.must(ctx, "delete_vm", "agent-vm-3")
		Expect(w.least(ctx)).To(BeZero())
		w.must(ctx, "delete_vm", "agent-vm-4")
		Eventually(w.budget).WithContext(ctx).WithArguments(group).Should(BeNil())
		Eventually(w.budget).WithContext(ctx).WithArguments(group + "-disks").Should(BeNil())
		Expect(w.budget(ctx, "another")).NotTo(BeNil())
	})

	It("has its machines counted by their metadata alone, however many there are", func(ctx context.Context) {
		w.create(ctx, "one", oneAway(), inGroup(group))
		var counted atomic.Int32
		proxy.Reset(func(_ int, answer http.ResponseWriter, request *http.Request, next http.Handler) {
			verb, kind, _ := apiproxy.Parse(request)
			ofGroup := strings.Contains(request.URL.Query().Get("labelSelector"), "bosh.cloudfoundry.org/group=")
			if verb == "list" && kind == "pods" && ofGroup {
				Expect(request.Header.Get("Accept")).To(ContainSubstring("as=PartialObjectMetadataList"))
				counted.Add(1)
			}
			next.ServeHTTP(answer, request)
		})
		w.create(ctx, "two", oneAway(), inGroup(group))
		Expect(w.least(ctx)).To(Equal(1))
		Expect(counted.Load()).To(BeNumerically(">", 0))
	})

	It("does not count machines that have ended, or are to end", func(ctx context.Context) {
		for _, agent := range []string{"one", "two"} {
			w.create(ctx, agent, oneAway(), inGroup(group))
		}
		w.end(ctx, "agent-one")
		w.create(ctx, "three", oneAway(), inGroup(group))
		Expect(w.least(ctx)).To(Equal(1), "of two that run")
		release := w.keep(ctx, pods, "agent-two")
		defer release()
		Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, "agent-two", metav1.DeleteOptions{})).To(Succeed())
		w.create(ctx, "four", oneAway(), inGroup(group))
		Expect(w.least(ctx)).To(Equal(1), "of two that stay")
	})

	It("keeps the number of machines that was asked for", func(ctx context.Context) {
		properties := map[string]any{"disruption_budget": map[string]any{"min_available": 2}}
		w.create(ctx, "one", properties, inGroup(group))
		w.create(ctx, "two", properties, inGroup(group))
		Expect(w.least(ctx)).To(Equal(2))
		w.must(ctx, "delete_vm", "agent-one")
		Expect(w.least(ctx)).To(Equal(2))
	})

	It("has no bigger budget after a create_vm that failed", func(ctx context.Context) {
		w.create(ctx, "one", oneAway(), inGroup(group))
		short := w
		short.Director = w.withTimeouts(map[string]any{"create_vm": "2s"})
		properties := oneAway()
		properties["node_selector"] = map[string]any{"no": "such"}
		short.fails(ctx, "create_vm", "two", stemcellCID, properties, onDynamic(), []string{}, inGroup(group))
		Expect(w.least(ctx)).To(BeZero())
	})

	It("does not take over the budget of someone else", func(ctx context.Context) {
		_, err := cluster.PolicyV1().PodDisruptionBudgets(w.namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: group}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		failed := w.fails(ctx, "create_vm", "one", stemcellCID, oneAway(), onDynamic(), []string{}, inGroup(group))
		Expect(failed.Message).To(ContainSubstring("not this director's"))
		Eventually(w.objects).WithContext(ctx).Should(ConsistOf("PodDisruptionBudget/" + group))
	})

	It("whose budget is on its way out gets a new one", func(ctx context.Context) {
		w.create(ctx, "one", oneAway(), inGroup(group))
		release := w.keep(ctx, budgets, group)
		Expect(cluster.PolicyV1().PodDisruptionBudgets(w.namespace).Delete(ctx, group, metav1.DeleteOptions{})).To(Succeed())
		proxy.Reset(nil)
		created := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(created)
			w.create(ctx, "two", oneAway(), inGroup(group))
		}()
		Eventually(proxy.Requests).Should(ContainElement(HavePrefix("WATCH ")))
		Eventually(proxy.Requests).Should(ContainElement("WATCH /apis/policy/v1/namespaces/" + w.namespace + "/poddisruptionbudgets"))
		release()
		Eventually(created).WithContext(ctx).Should(BeClosed())
		Expect(w.least(ctx)).To(Equal(1))
	})

	It("has the right budget after create_vm was killed after any request and repeated", func(ctx context.Context) {
		eachRequest(6, func(n int) bool {
			agent := fmt.Sprintf("killed-%d", n)
			cut := w.killed(ctx, n, "create_vm", agent, stemcellCID, oneAway(), onDynamic(), []string{}, inGroup(group))
			w.create(ctx, agent, oneAway(), inGroup(group))
			Expect(w.least(ctx)).To(Equal(n - 1))
			Expect(w.budget(ctx, group).OwnerReferences).To(HaveLen(n))
			Expect(w.budget(ctx, group+"-disks").OwnerReferences).To(HaveLen(n))
			return cut
		})
	})
})

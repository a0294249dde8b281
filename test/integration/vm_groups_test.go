package integration

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

const groupName = "director-cf-web"

// groupEnv returns the env that the director sends for an instance group.
func groupEnv(name string) map[string]any {
	return map[string]any{"bosh": map[string]any{"group": name}}
}

// maxOneUnavailable returns cloud_properties with a PodDisruptionBudget.
func maxOneUnavailable() map[string]any {
	return map[string]any{"disruption_budget": map[string]any{"max_unavailable": 1}}
}

// getPDB returns the PodDisruptionBudget, or nil if it does not exist.
func (env testEnv) getPDB(ctx context.Context, name string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	return nilIfNotFound(cluster.PolicyV1().PodDisruptionBudgets(env.namespace).Get(ctx, name, metav1.GetOptions{}))
}

// minAvailable returns how many VMs of the group must stay available.
func (env testEnv) minAvailable(ctx context.Context) int {
	GinkgoHelper()
	return env.getPDB(ctx, groupName).Spec.MinAvailable.IntValue()
}

// evictPod evicts a Pod, as a drain does.
func (env testEnv) evictPod(ctx context.Context, pod string) error {
	return cluster.CoreV1().Pods(env.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
}

var _ = Describe("An instance group", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("has soft spread constraints by default, and no PodDisruptionBudget", func(ctx context.Context) {
		vm := env.createVMWithProperties(ctx, "one", map[string]any{}, groupEnv(groupName))
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/group", groupName))
		Expect(pod.Spec.TopologySpreadConstraints).To(HaveLen(2))
		Expect(env.getPDB(ctx, groupName)).To(BeNil())
		vm = env.createVMWithProperties(ctx, "two", map[string]any{"topology_spread_constraints": []any{}}, groupEnv(groupName))
		pod, err = cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.TopologySpreadConstraints).To(BeEmpty())
	})

	It("with a PodDisruptionBudget loses one VM at a time in a drain, and no attachment Pod before its VM", func(ctx context.Context) {
		for _, agent := range []string{"one", "two", "three"} {
			env.createVMWithProperties(ctx, agent, maxOneUnavailable(), groupEnv(groupName))
		}
		disk := env.createDisk(ctx)
		env.mustCall(ctx, "attach_disk", "agent-one", disk)
		Expect(env.minAvailable(ctx)).To(Equal(2))
		Eventually(func() int32 { return env.getPDB(ctx, groupName).Status.DisruptionsAllowed }).Should(Equal(int32(1)))

		Eventually(func() int32 { return env.getPDB(ctx, groupName+".disks").Status.CurrentHealthy }).Should(Equal(int32(1)))
		Expect(apierrors.IsTooManyRequests(env.evictPod(ctx, disk+"-attachment"))).To(BeTrue())
		Expect(env.evictPod(ctx, "agent-one")).To(Succeed())
		Expect(apierrors.IsTooManyRequests(env.evictPod(ctx, "agent-two"))).To(BeTrue())
		Eventually(func() error {
			_, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
			return err
		}).Should(Satisfy(apierrors.IsNotFound), "the attachment Pod is deleted with its VM")

		// The next VM can be evicted only after the resurrector replaced the first one.
		response, err := env.Call(ctx, "delete_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(Or(BeNil(), HaveField("Type", "Bosh::Clouds::VMNotFound")))
		Expect(apierrors.IsTooManyRequests(env.evictPod(ctx, "agent-two"))).To(BeTrue())
		env.createVMWithProperties(ctx, "four", maxOneUnavailable(), groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(Equal(2))
		Eventually(env.evictPod).WithContext(ctx).WithArguments("agent-two").Should(Succeed())
	})

	It("has a PodDisruptionBudget that follows its size, and is deleted with its last VM", func(ctx context.Context) {
		var calls sync.WaitGroup
		for n := range 5 {
			calls.Go(func() {
				defer GinkgoRecover()
				env.createVMWithProperties(ctx, fmt.Sprintf("vm-%d", n), maxOneUnavailable(), groupEnv(groupName))
			})
		}
		calls.Wait()
		Expect(env.minAvailable(ctx)).To(Equal(4))
		env.createVMWithProperties(ctx, "other", maxOneUnavailable(), groupEnv("another"))
		for n := range 3 {
			calls.Go(func() {
				defer GinkgoRecover()
				env.mustCall(ctx, "delete_vm", fmt.Sprintf("agent-vm-%d", n))
			})
		}
		calls.Wait()
		Expect(env.minAvailable(ctx)).To(Equal(1))
		env.mustCall(ctx, "delete_vm", "agent-vm-3")
		Expect(env.minAvailable(ctx)).To(BeZero())
		env.mustCall(ctx, "delete_vm", "agent-vm-4")
		Eventually(env.getPDB).WithContext(ctx).WithArguments(groupName).Should(BeNil())
		Eventually(env.getPDB).WithContext(ctx).WithArguments(groupName + ".disks").Should(BeNil())
		Expect(env.getPDB(ctx, "another")).NotTo(BeNil())
	})

	It("of 12 VMs with disks is deployed, recreated and deleted by six workers, and leaves nothing", func(ctx context.Context) {
		const vms, workers = 12, 6
		disks := make([]string, vms)
		deploy := func(update func(n int)) {
			GinkgoHelper()
			var next atomic.Int32
			var calls sync.WaitGroup
			for range workers {
				calls.Go(func() {
					defer GinkgoRecover()
					for n := int(next.Add(1)) - 1; n < vms; n = int(next.Add(1)) - 1 {
						update(n)
					}
				})
			}
			calls.Wait()
		}
		create := func(agent string, n int) {
			env.mustCall(ctx, "create_vm", agent, stemcellCID, maxOneUnavailable(), dynamicNetwork(), disks[n:n+1], groupEnv(groupName))
			env.mustCall(ctx, "attach_disk", "agent-"+agent, disks[n])
		}
		remove := func(agent string, n int) {
			env.mustCall(ctx, "detach_disk", "agent-"+agent, disks[n])
			env.mustCall(ctx, "delete_vm", "agent-"+agent)
		}
		deploy(func(n int) {
			disks[n] = env.createDisk(ctx)
			create(strconv.Itoa(n), n)
		})
		Expect(env.minAvailable(ctx)).To(Equal(vms - 1))
		deploy(func(n int) {
			remove(strconv.Itoa(n), n)
			create("recreated-"+strconv.Itoa(n), n)
		})
		Expect(env.minAvailable(ctx)).To(Equal(vms - 1))
		deploy(func(n int) {
			remove("recreated-"+strconv.Itoa(n), n)
			env.mustCall(ctx, "delete_disk", disks[n])
		})
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("counts its VMs with a request for metadata only", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", maxOneUnavailable(), groupEnv(groupName))
		var counted atomic.Int32
		proxy.Reset(func(_ int, w http.ResponseWriter, request *http.Request, next http.Handler) {
			verb, resource, _ := apiproxy.ParseRequest(request)
			selectsGroup := strings.Contains(request.URL.Query().Get("labelSelector"), "bosh.cloudfoundry.org/group=")
			if verb == "list" && resource == "pods" && selectsGroup {
				Expect(request.Header.Get("Accept")).To(ContainSubstring("as=PartialObjectMetadataList"))
				counted.Add(1)
			}
			next.ServeHTTP(w, request)
		})
		env.createVMWithProperties(ctx, "two", maxOneUnavailable(), groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(Equal(1))
		Expect(counted.Load()).To(BeNumerically(">", 0))
	})

	It("does not count terminated VMs and VMs that are being deleted", func(ctx context.Context) {
		for _, agent := range []string{"one", "two"} {
			env.createVMWithProperties(ctx, agent, maxOneUnavailable(), groupEnv(groupName))
		}
		env.markEvicted(ctx, "agent-one")
		env.createVMWithProperties(ctx, "three", maxOneUnavailable(), groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(Equal(1), "of two running VMs")
		release := env.blockDeletion(ctx, podResource, "agent-two")
		defer release()
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, "agent-two", metav1.DeleteOptions{})).To(Succeed())
		env.createVMWithProperties(ctx, "four", maxOneUnavailable(), groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(Equal(1), "of two remaining VMs")
	})

	It("keeps the min_available that was requested", func(ctx context.Context) {
		properties := map[string]any{"disruption_budget": map[string]any{"min_available": 2}}
		env.createVMWithProperties(ctx, "one", properties, groupEnv(groupName))
		env.createVMWithProperties(ctx, "two", properties, groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(Equal(2))
		env.mustCall(ctx, "delete_vm", "agent-one")
		Expect(env.minAvailable(ctx)).To(Equal(2))
	})

	It("has no larger PodDisruptionBudget after a failed create_vm", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", maxOneUnavailable(), groupEnv(groupName))
		shortTimeout := env
		shortTimeout.Director = env.directorWithTimeouts(map[string]any{"create_vm": waitTimeout})
		properties := maxOneUnavailable()
		properties["node_selector"] = map[string]any{"no": "such"}
		shortTimeout.mustFail(ctx, "create_vm", "two", stemcellCID, properties, dynamicNetwork(), []string{}, groupEnv(groupName))
		Expect(env.minAvailable(ctx)).To(BeZero())
	})

	It("does not adopt another user's PodDisruptionBudget", func(ctx context.Context) {
		_, err := cluster.PolicyV1().PodDisruptionBudgets(env.namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: groupName}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, maxOneUnavailable(), dynamicNetwork(), []string{}, groupEnv(groupName))
		Expect(failed.Message).To(ContainSubstring("does not belong to this director"))
		Eventually(env.listObjects).WithContext(ctx).Should(ConsistOf("PodDisruptionBudget/" + groupName))
	})

	It("gets a new PodDisruptionBudget if the old one is being deleted", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", maxOneUnavailable(), groupEnv(groupName))
		release := env.blockDeletion(ctx, pdbResource, groupName)
		Expect(cluster.PolicyV1().PodDisruptionBudgets(env.namespace).Delete(ctx, groupName, metav1.DeleteOptions{})).To(Succeed())
		proxy.Reset(nil)
		created := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(created)
			env.createVMWithProperties(ctx, "two", maxOneUnavailable(), groupEnv(groupName))
		}()
		Eventually(proxy.Requests).Should(ContainElement(HavePrefix("WATCH ")))
		Eventually(proxy.Requests).Should(ContainElement("WATCH /apis/policy/v1/namespaces/" + env.namespace + "/poddisruptionbudgets"))
		release()
		Eventually(created).WithContext(ctx).Should(BeClosed())
		Expect(env.minAvailable(ctx)).To(Equal(1))
	})

	It("has the correct PodDisruptionBudget after a create_vm was killed after any request and retried", Label("faults"), func(ctx context.Context) {
		vms := 0
		forEachRequest(6, func(n int) bool {
			vms++
			agent := fmt.Sprintf("killed-%d", n)
			interrupted := env.interruptCall(ctx, n, "create_vm", agent, stemcellCID, maxOneUnavailable(), dynamicNetwork(), []string{}, groupEnv(groupName))
			env.createVMWithProperties(ctx, agent, maxOneUnavailable(), groupEnv(groupName))
			Expect(env.minAvailable(ctx)).To(Equal(vms - 1))
			Expect(env.getPDB(ctx, groupName).OwnerReferences).To(HaveLen(vms))
			Expect(env.getPDB(ctx, groupName+".disks").OwnerReferences).To(HaveLen(vms))
			return interrupted
		})
	})
})

package integration

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/test/harness/director"
)

// runCollect runs cpi -collect, and returns the lines of its output. With the short timeouts, objects count as orphaned after a second.
func (env testEnv) runCollect(ctx context.Context, uuid string, extraArgs ...string) []string {
	GinkgoHelper()
	shortTimeouts := env.directorWithTimeouts(map[string]any{"create_stemcell": "1s", "create_vm": "1s", "delete_vm": "1s", "attach_disk": "1s", "detach_disk": "1s", "other": "1s"})
	return collectOutput(ctx, shortTimeouts.Config, uuid, extraArgs...)
}

// listOrphans returns the lines of the output of cpi -collect with this configuration, for the director of the environment.
func (env testEnv) listOrphans(ctx context.Context, config string, extraArgs ...string) []string {
	GinkgoHelper()
	return collectOutput(ctx, config, director.UUID, extraArgs...)
}

// collectOutput runs cpi -collect, and returns the lines of its output.
func collectOutput(ctx context.Context, config, uuid string, extraArgs ...string) []string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, cpiPath, append([]string{"-configPath", config, "-collect", "-director", uuid}, extraArgs...)...).Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

var _ = Describe("Garbage collection", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		namedVM := env.createVMWithProperties(ctx, "named", servicesProperties(namedService(nil)), groupEnv(groupName))
		env.mustCall(ctx, "set_vm_metadata", namedVM, map[string]any{"job": "web"})
		env.mustCall(ctx, "attach_disk", namedVM, env.createDisk(ctx))
	})

	// createOrphans creates objects of a director that no VM uses.
	createOrphans := func(ctx context.Context, uuid string) {
		GinkgoHelper()
		labels := func(role string) map[string]string {
			return map[string]string{"app.kubernetes.io/managed-by": "bosh-kubernetes-cpi", "bosh.cloudfoundry.org/director-uuid": uuid, "bosh.cloudfoundry.org/role": role}
		}
		name := "orphan-" + uuid[:2]
		_, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels("attachment")},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "attach", Image: "i"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.CoreV1().Services(env.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels("service")}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}

	It("lists orphaned resources, then deletes them, except disks and objects of other directors", func(ctx context.Context) {
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
		clean := env.listObjects(ctx)

		createOrphans(ctx, "another")
		Expect(env.interruptCall(ctx, 3, "create_vm", "killed", stemcellCID, servicesProperties(namedService(nil)), dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
		createOrphans(ctx, director.UUID)
		disk := env.createDisk(ctx)
		allObjects := env.listObjects(ctx)
		listed := []any{
			And(ContainSubstring("Pod "+env.namespace+"/agent-killed ("), Not(ContainSubstring(": kept"))), ContainSubstring("Pod " + env.namespace + "/orphan-71"),
			ContainSubstring("Service " + env.namespace + "/orphan-71"),
		}
		Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(append(listed, ContainSubstring("-confirm"))...))
		Expect(env.listObjects(ctx)).To(ConsistOf(allObjects))

		Expect(env.runCollect(ctx, director.UUID, "-confirm")).To(ConsistOf(listed...))
		Eventually(env.listObjects).WithContext(ctx).Should(ConsistOf(append(clean, "Pod/orphan-an", "Service/orphan-an", "PersistentVolumeClaim/"+disk)))
		Expect(env.getService(ctx, "web")).NotTo(BeNil())
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
	})

	It("keeps orphaned resources while their call may still run, unless -min-age is shorter", func(ctx context.Context) {
		Expect(env.interruptCall(ctx, 3, "create_vm", "killed", stemcellCID, servicesProperties(namedService(nil)), dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
		defaultTimeouts := env.directorWithTimeouts(map[string]any{})
		env.Director = defaultTimeouts
		listed := And(ContainSubstring("/agent-killed ("), ContainSubstring("unless its call is still running: orphaned by an interrupted create_vm"), ContainSubstring(": kept"))
		Expect(env.listOrphans(ctx, defaultTimeouts.Config)).To(ContainElement(listed))
		Eventually(env.listOrphans).WithContext(ctx).WithArguments(defaultTimeouts.Config, "-min-age", "1s").Should(ContainElement(
			And(ContainSubstring("/agent-killed ("), ContainSubstring("would be deleted"))))
	})

	It("computes ages by the API server's clock, not by the clock of the host", func(ctx context.Context) {
		Expect(env.interruptCall(ctx, 3, "create_vm", "killed", stemcellCID, servicesProperties(namedService(nil)), dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
		defaultTimeouts := env.directorWithTimeouts(map[string]any{})
		Expect(env.listOrphans(ctx, defaultTimeouts.Config)).To(ContainElement(And(ContainSubstring("/agent-killed ("), ContainSubstring(": kept"))))
		proxy.Reset(skewServerClock(2 * time.Hour))
		Expect(env.listOrphans(ctx, defaultTimeouts.Config)).To(ContainElement(And(ContainSubstring("/agent-killed (120m"), ContainSubstring("would be deleted"))))
	})

	It("finds the time of a call's last write of an object in the fields that the API server manages", func(ctx context.Context) {
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, env.createVM(ctx, "one"), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		created := pod.CreationTimestamp.Time
		pod.CreationTimestamp = metav1.Time{}
		Expect(call.LastWritten(pod)).To(BeTemporally(">=", created))
	})

	It("deletes VolumeSnapshots of interrupted calls", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, "agent-named", map[string]any{})
		known := env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		const lastRequest = 5 // the requests are for the PVC, its volume, its attachment Pod, the snapshot, and the wait
		for n := 4; n <= lastRequest; n++ {
			Expect(env.interruptCall(ctx, n, "snapshot_disk", disk, map[string]any{})).To(BeTrue())
		}
		orphan := ContainSubstring("VolumeSnapshot " + env.namespace + "/snapshot-")
		Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(orphan, orphan, ContainSubstring("-confirm")))
		env.runCollect(ctx, director.UUID, "-confirm")
		Expect(env.listSnapshots(ctx)).To(Equal([]string{known}))
	})

	It("skips VolumeSnapshots if the CPI has no permission to list them", func(ctx context.Context) {
		role, err := cluster.RbacV1().Roles(env.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return rule.Resources[0] == "volumesnapshots" })
		_, err = cluster.RbacV1().Roles(env.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (director.Response, error) { return env.Call(ctx, "delete_snapshot", "snapshot-none") }).WithContext(ctx).Should(
			HaveField("Error", HaveField("Message", ContainSubstring("denied a request"))))
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
	})

	It("deletes PodDisruptionBudgets without VMs, and changes those that block every drain", func(ctx context.Context) {
		for _, agent := range []string{"one", "two"} {
			env.mustCall(ctx, "set_vm_metadata", env.createVMWithProperties(ctx, agent, maxOneUnavailable(), groupEnv("shrunk")), map[string]any{"job": "web"})
		}
		env.createVMWithProperties(ctx, "three", maxOneUnavailable(), groupEnv("empty"))
		_, err := cluster.PolicyV1().PodDisruptionBudgets(env.namespace).Patch(ctx, "empty", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, vm := range []string{"agent-one", "agent-three"} {
			Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, vm, metav1.DeleteOptions{})).To(Succeed())
		}
		Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
			ContainSubstring("PodDisruptionBudget "+env.namespace+"/empty"), And(ContainSubstring("/shrunk"), ContainSubstring("set to 0")), ContainSubstring("-confirm")))
		env.runCollect(ctx, director.UUID, "-confirm")
		Expect(env.getPDB(ctx, "empty")).To(BeNil())
		Expect(env.getPDB(ctx, "shrunk").Spec.MinAvailable.IntValue()).To(BeZero())
	})
})

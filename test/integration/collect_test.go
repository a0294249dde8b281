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

	"bosh-kubernetes-cpi/test/director"
)

// collect runs the CPI's program with -collect and returns its lines.
func (w world) collect(ctx context.Context, uuid string, more ...string) []string {
	GinkgoHelper()
	quick := w.withTimeouts(map[string]any{"create_stemcell": "1s", "create_vm": "1s", "delete_vm": "1s", "attach_disk": "1s", "detach_disk": "1s", "update_disk": "1s", "other": "1s"})
	return collected(ctx, quick.Config, uuid, more...)
}

// listed is what the program lists with this configuration for the world's director.
func (w world) listed(ctx context.Context, config string, more ...string) []string {
	GinkgoHelper()
	return collected(ctx, config, director.UUID, more...)
}

func collected(ctx context.Context, config, uuid string, more ...string) []string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, program, append([]string{"-configPath", config, "-collect", "-director", uuid}, more...)...).Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

var _ = Describe("Left-overs", func() {
	var w world
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		named := w.create(ctx, "named", behind(fixed(nil)), inGroup(group))
		w.must(ctx, "set_vm_metadata", named, map[string]any{"job": "web"})
		w.must(ctx, "attach_disk", named, w.createDisk(ctx))
	})

	// orphans makes what no machine needs, for a director.
	orphans := func(ctx context.Context, uuid string) {
		GinkgoHelper()
		labels := func(role string) map[string]string {
			return map[string]string{"app.kubernetes.io/managed-by": "bosh-kubernetes-cpi", "bosh.cloudfoundry.org/director-uuid": uuid, "bosh.cloudfoundry.org/role": role}
		}
		name := "orphan-" + uuid[:2]
		_, err := cluster.CoreV1().Pods(w.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels("attachment")},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hold", Image: "i"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels("service")}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}

	It("are listed and then removed, but for disks and what another director has", func(ctx context.Context) {
		Expect(w.collect(ctx, director.UUID)).To(Equal([]string{"nothing is left over"}))
		clean := w.objects(ctx)

		orphans(ctx, "another")
		Expect(w.killed(ctx, 3, "create_vm", "killed", stemcellCID, behind(fixed(nil)), onDynamic(), []string{}, map[string]any{})).To(BeTrue())
		orphans(ctx, director.UUID)
		disk := w.createDisk(ctx)
		all := w.objects(ctx)
		listed := []any{
			And(ContainSubstring("Pod "+w.namespace+"/agent-killed ("), Not(ContainSubstring(": stays"))), ContainSubstring("Pod " + w.namespace + "/orphan-71"),
			ContainSubstring("Service " + w.namespace + "/orphan-71"),
		}
		Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(append(listed, ContainSubstring("-confirm"))...))
		Expect(w.objects(ctx)).To(ConsistOf(all))

		Expect(w.collect(ctx, director.UUID, "-confirm")).To(ConsistOf(listed...))
		Eventually(w.objects).WithContext(ctx).Should(ConsistOf(append(clean, "Pod/orphan-an", "Service/orphan-an", "PersistentVolumeClaim/"+disk)))
		Expect(w.service(ctx, "web")).NotTo(BeNil())
		Expect(w.collect(ctx, director.UUID)).To(Equal([]string{"nothing is left over"}))
	})

	It("are told of while a call may still be at them, and are removed after a shorter grace", func(ctx context.Context) {
		Expect(w.killed(ctx, 3, "create_vm", "killed", stemcellCID, behind(fixed(nil)), onDynamic(), []string{}, map[string]any{})).To(BeTrue())
		patient := w.withTimeouts(map[string]any{})
		w.Director = patient
		listed := And(ContainSubstring("/agent-killed ("), ContainSubstring("if no call is at it any more, a create_vm that was cut short has left it"), ContainSubstring(": stays"))
		Expect(w.listed(ctx, patient.Config)).To(ContainElement(listed))
		Eventually(w.listed).WithContext(ctx).WithArguments(patient.Config, "-grace", "1s").Should(ContainElement(
			And(ContainSubstring("/agent-killed ("), ContainSubstring("would be deleted"))))
	})

	It("are as old as by the API server's clock, whatever this machine's says", func(ctx context.Context) {
		Expect(w.killed(ctx, 3, "create_vm", "killed", stemcellCID, behind(fixed(nil)), onDynamic(), []string{}, map[string]any{})).To(BeTrue())
		patient := w.withTimeouts(map[string]any{})
		Expect(w.listed(ctx, patient.Config)).To(ContainElement(And(ContainSubstring("/agent-killed ("), ContainSubstring(": stays"))))
		proxy.Reset(clockAhead(2 * time.Hour))
		Expect(w.listed(ctx, patient.Config)).To(ContainElement(And(ContainSubstring("/agent-killed (120m"), ContainSubstring("would be deleted"))))
	})

	It("are snapshots that no call has answered with", func(ctx context.Context) {
		disk := w.usedDisk(ctx, "agent-named", map[string]any{})
		known := w.must(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		const untilTaken = 5 // the claim, its volume, whether it is attached, the snapshot, and the wait
		for n := 4; n <= untilTaken; n++ {
			Expect(w.killed(ctx, n, "snapshot_disk", disk, map[string]any{})).To(BeTrue())
		}
		left := ContainSubstring("VolumeSnapshot " + w.namespace + "/snapshot-")
		Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(left, left, ContainSubstring("-confirm")))
		w.collect(ctx, director.UUID, "-confirm")
		Expect(w.snapshots(ctx)).To(Equal([]string{known}))
	})

	It("are looked for without snapshots where the CPI has no right to those, as in clusters that take none", func(ctx context.Context) {
		role, err := cluster.RbacV1().Roles(w.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return rule.Resources[0] == "volumesnapshots" })
		_, err = cluster.RbacV1().Roles(w.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (director.Response, error) { return w.Call(ctx, "delete_snapshot", "snapshot-none") }).WithContext(ctx).Should(
			HaveField("Error", HaveField("Message", ContainSubstring("refuses the request"))))
		Expect(w.collect(ctx, director.UUID)).To(Equal([]string{"nothing is left over"}))
	})

	It("are budgets without machines, and those that block every drain", func(ctx context.Context) {
		for _, agent := range []string{"one", "two"} {
			w.must(ctx, "set_vm_metadata", w.create(ctx, agent, oneAway(), inGroup("shrunk")), map[string]any{"job": "web"})
		}
		w.create(ctx, "three", oneAway(), inGroup("empty"))
		_, err := cluster.PolicyV1().PodDisruptionBudgets(w.namespace).Patch(ctx, "empty", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, vm := range []string{"agent-one", "agent-three"} {
			Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, vm, metav1.DeleteOptions{})).To(Succeed())
		}
		Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
			ContainSubstring("PodDisruptionBudget "+w.namespace+"/empty"), And(ContainSubstring("/shrunk"), ContainSubstring("set to 0")), ContainSubstring("-confirm")))
		w.collect(ctx, director.UUID, "-confirm")
		Expect(w.budget(ctx, "empty")).To(BeNil())
		Expect(w.budget(ctx, "shrunk").Spec.MinAvailable.IntValue()).To(BeZero())
	})
})

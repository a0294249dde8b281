package manifest_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/manifest"
)

func webService() manifest.Service {
	return manifest.Service{
		Name: "web", CustomName: true, Type: corev1.ServiceTypeNodePort, ExternalIPs: []string{"192.0.2.1"},
		Ports:  []corev1.ServicePort{{Name: "tcp-80", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		Labels: map[string]string{"tier": "web", manifest.LabelRole: "ignored"}, Annotations: map[string]string{"note": "a"},
	}
}

var _ = Describe("A Service", func() {
	It("is owned by its first VM, and selects all VMs with its label", func() {
		expectGolden("service", webService().Object(runningPod(testVM()), "d1"))
	})

	It("has no owner if it is kept", func() {
		kept := webService()
		kept.Keep = true
		service := kept.Object(runningPod(testVM()), "d1")
		Expect(service.OwnerReferences).To(BeEmpty())
		Expect(manifest.IsKept(service)).To(BeTrue())
	})

	It("keeps its address and first owner, and gets new ports, when another VM joins", func() {
		existing := webService().Object(runningPod(testVM()), "d1")
		existing.UID, existing.Spec.ClusterIP = "uid-of-the-service", "10.96.0.7"
		existing.Annotations["cloud.example.com/address"] = "kept"
		next := webService()
		next.Ports = []corev1.ServicePort{{Name: "tcp-443", Port: 443, TargetPort: intstr.FromInt32(443), Protocol: corev1.ProtocolTCP}}
		next.ExternalIPs = nil
		other := runningPod(testVM())
		other.Name, other.UID = "agent-b2", "uid-of-another"
		patch := next.JoinPatch(existing, other, nil, "d1")
		expectGolden("service-joined", applyPatch(existing, patch))

		next.Keep = true
		patch = next.JoinPatch(existing, other, nil, "d1")
		Expect(applyPatch(existing, patch).OwnerReferences).To(BeEmpty())
	})
})

var _ = Describe("An instance group", func() {
	group := func(name string) manifest.VM {
		vm := testVM()
		vm.Group, vm.Budget = name, &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}
		return vm
	}

	It("has a PodDisruptionBudget for its VMs and one for their disks, both owned by the VMs", func() {
		vm := group("d-cf-web")
		expectGolden("budget", vm.Budget.Object(vm, runningPod(vm), 3))
		expectGolden("budget-disks", manifest.AttachmentPDB(vm, runningPod(vm)))
	})

	It("has a hash as its label if its name is not a valid label, and the name as an annotation", func() {
		long := "d-cf-" + strings.Repeat("web", 30)
		pod := runningPod(group(long))
		Expect(pod.Labels[manifest.LabelGroup]).To(MatchRegexp(`^group-[0-9a-f]{32}$`))
		Expect(pod.Annotations[manifest.LabelGroup]).To(Equal(long))
		Expect(manifest.PDBName(long)).To(Equal(pod.Labels[manifest.LabelGroup]))
		Expect(manifest.PDBName("Under_Score")).To(HavePrefix("group-"))
		Expect(pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels).To(HaveKeyWithValue(manifest.LabelGroup, pod.Labels[manifest.LabelGroup]))
	})

	It("is not spread if other constraints, or none, are requested", func() {
		vm := group("g")
		vm.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{}
		Expect(vm.Pod().Spec.TopologySpreadConstraints).To(BeEmpty())
	})

	It("includes the attachments of its VMs", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(group("g"))}.Pod()
		Expect(attachment.Labels).To(HaveKeyWithValue(manifest.LabelGroup, "g"))
	})

	It("gets another VM only if its PodDisruptionBudget is unchanged since it was read", func() {
		vm := group("g")
		existing := vm.Budget.Object(vm, runningPod(vm), 1)
		existing.UID, existing.ResourceVersion = "uid-of-the-budget", "7"
		other := runningPod(vm)
		other.Name, other.UID = "agent-b2", "uid-of-another"
		patch := manifest.JoinPDBPatch(existing, vm.Budget.Object(vm, other, 2))
		joined := applyPatch(existing, patch)
		Expect(joined.OwnerReferences).To(ConsistOf(HaveField("Name", "agent-a1"), HaveField("Name", "agent-b2")))
		Expect(joined.Spec.MinAvailable.IntVal).To(Equal(int32(1)))
		Expect(string(patch)).To(ContainSubstring(`"resourceVersion":"7"`))
	})

	withBudget := func(value string) metav1.Object {
		return &metav1.ObjectMeta{Annotations: map[string]string{manifest.AnnotationDisruptionBudget: value}}
	}

	DescribeTable("keeps as many VMs available as requested:",
		func(budget manifest.DisruptionBudget, vms int, minAvailable int32, annotation string) {
			Expect(budget.MinAvailableFor(vms)).To(Equal(minAvailable))
			Expect(budget.String()).To(Equal(annotation))
			Expect(manifest.DisruptionBudgetOf(withBudget(annotation))).To(Equal(&budget))
		},
		Entry("all but one", manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}, 3, int32(2), "max-unavailable=1"),
		Entry("none of a small group", manifest.DisruptionBudget{MaxUnavailable: new(int32(2))}, 1, int32(0), "max-unavailable=2"),
		Entry("a number", manifest.DisruptionBudget{MinAvailable: new(int32(2))}, 9, int32(2), "min-available=2"),
	)

	It("has no PodDisruptionBudget without a valid annotation", func() {
		Expect(manifest.DisruptionBudgetOf(&metav1.ObjectMeta{})).To(BeNil())
		Expect(manifest.DisruptionBudgetOf(withBudget("odd=1"))).To(BeNil())
	})
})

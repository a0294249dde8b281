package instances

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2" // not a dot import: the package has a Describe, too
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = ginkgo.Describe("Instances", func() {
	const namespace = "bosh"
	var api *memoryapi.Server
	var client *kube.Client
	ginkgo.BeforeEach(func() {
		api = memoryapi.New()
		api.Simulate = memoryapi.StartPods("node-1")
		var err error
		client, err = kube.NewForConfig(api.Config(), namespace, 0)
		Expect(err).NotTo(HaveOccurred())
	})

	// addVM adds the VM of an instance of group web.
	addVM := func(ctx context.Context, deployment string, index int) manifest.VMPod {
		ginkgo.GinkgoHelper()
		vm := manifest.VM{Name: fmt.Sprintf("agent-%s-%d", deployment, index), Namespace: namespace, Director: "uuid", Services: []manifest.Service{{Name: "web"}}}.Pod()
		vm.Annotations[manifest.AnnotationMetadata] = fmt.Sprintf(
			`{"director": "lab", "deployment": %q, "job": "web", "index": %d, "id": "id-%s-%d"}`, deployment, index, deployment, index)
		pod, err := client.Pods.Create(ctx, vm.Pod)
		Expect(err).NotTo(HaveOccurred())
		return manifest.VMPod{Pod: pod}
	}
	// addDisk adds a disk of the VM, with an attachment Pod.
	addDisk := func(ctx context.Context, name string, vm manifest.VMPod) {
		ginkgo.GinkgoHelper()
		pvc := manifest.Disk{Name: name, Namespace: namespace, Director: "uuid", SizeMiB: 1024, StorageClass: "fast"}.PVC()
		pvc.Labels[manifest.LabelVM] = vm.Name
		_, err := client.PVCs.Create(ctx, pvc.PVC)
		Expect(err).NotTo(HaveOccurred())
		attachment := manifest.Attachment{Disk: name, VM: vm, Director: "uuid"}.Pod()
		attachment.Spec.SchedulingGates = nil
		_, err = client.Pods.Create(ctx, attachment.Pod)
		Expect(err).NotTo(HaveOccurred())
	}

	ginkgo.It("are listed in order, with their disks and Services", func(ctx context.Context) {
		addVM(ctx, "cf", 10)
		vm := addVM(ctx, "cf", 9)
		addDisk(ctx, "disk-1", vm)
		_, err := client.Services.Create(ctx, (manifest.Service{Name: "web"}).Object(vm, "uuid"))
		Expect(err).NotTo(HaveOccurred())
		list, err := List(ctx, client, Filter{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(2))
		Expect(list[0]).To(And(HaveField("Pod", "agent-cf-9"), HaveField("State", "Running"), HaveField("Ready", true), HaveField("Node", "node-1"),
			HaveField("Addresses", []string{"10.0.0.1"}), HaveField("Services", []string{"web"})))
		Expect(list[0].Name()).To(Equal("web/9"))
		Expect(list[0].Disks).To(Equal([]Disk{
			{CID: "disk-1", Size: "1Gi", StorageClass: "fast", State: "Attached", Attachment: "disk-1-attachment", Node: "node-1"},
		}))
		Expect(list[1].Disks).To(BeEmpty())
	})

	ginkgo.It("are listed with a disk that has a PVC that is being deleted", func(ctx context.Context) {
		addDisk(ctx, "disk-1", addVM(ctx, "cf", 0))
		memoryapi.Update(api, "persistentvolumeclaims", namespace, "disk-1", &corev1.PersistentVolumeClaim{}, func(pvc *corev1.PersistentVolumeClaim) {
			pvc.DeletionTimestamp = new(metav1.Now())
		})
		list, err := List(ctx, client, Filter{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveExactElements(HaveField("Disks", HaveExactElements(HaveField("State", "Terminating")))))
	})

	ginkgo.It("are listed in all namespaces, each with objects of its own namespace", func(ctx context.Context) {
		vm := addVM(ctx, "cf", 0)
		addDisk(ctx, "disk-1", vm)
		other := vm.DeepCopy()
		other.Namespace, other.ResourceVersion = "other", ""
		api.Add("pods", "other", other)
		all, err := kube.NewForConfig(api.Config(), "", 0)
		Expect(err).NotTo(HaveOccurred())
		list, err := List(ctx, all, Filter{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(ConsistOf(
			And(HaveField("Namespace", namespace), HaveField("Disks", HaveLen(1))),
			And(HaveField("Namespace", "other"), HaveField("Disks", BeEmpty()))))
	})

	ginkgo.DescribeTable("are found by", func(ctx context.Context, name string, filter Filter) {
		addVM(ctx, "cf", 0)
		addVM(ctx, "db", 0)
		instance, err := Find(ctx, client, filter, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(instance.Pod).To(Equal("agent-cf-0"))
	},
		ginkgo.Entry("group and index", "web/0", Filter{Deployment: "cf"}),
		ginkgo.Entry("group and ID", "web/id-cf-0", Filter{}),
		ginkgo.Entry("ID", "id-cf-0", Filter{Director: "lab"}),
		ginkgo.Entry("Pod", "pod/agent-cf-0", Filter{Director: "uuid"}),
	)

	ginkgo.It("are not found by an ambiguous or unknown name", func(ctx context.Context) {
		addVM(ctx, "cf", 0)
		addVM(ctx, "db", 0)
		_, err := Find(ctx, client, Filter{}, "web/0")
		Expect(err).To(MatchError(And(ContainSubstring("ambiguous"), ContainSubstring("agent-db-0 (deployment db, director lab)"))))
		_, err = Find(ctx, client, Filter{Deployment: "other"}, "web/0")
		Expect(err).To(MatchError(ContainSubstring(`"web/0" not found in namespace bosh`)))
		_, err = Describe(ctx, client, Filter{}, "web/1")
		Expect(err).To(HaveOccurred())
	})

	ginkgo.It("are described with their objects and events", func(ctx context.Context) {
		vm := addVM(ctx, "cf", 0)
		addDisk(ctx, "disk-1", vm)
		_, err := client.Services.Create(ctx, (manifest.Service{Name: "web"}).Object(vm, "uuid"))
		Expect(err).NotTo(HaveOccurred())
		api.Add("poddisruptionbudgets", namespace, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{manifest.LabelRole: manifest.RoleVM}}}})
		api.Add("events", namespace, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "scheduled"}, Message: "scheduled",
			InvolvedObject: corev1.ObjectReference{UID: vm.UID}, EventTime: metav1.NewMicroTime(time.UnixMilli(1000_700))})
		for i, message := range []string{"first", "second"} {
			api.Add("events", namespace, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: message}, Message: message,
				InvolvedObject: corev1.ObjectReference{UID: vm.UID}, LastTimestamp: metav1.Unix(int64(1000-i), 0)})
		}
		details, err := Describe(ctx, client, Filter{}, "web/0")
		Expect(err).NotTo(HaveOccurred())
		Expect(details.HelperAndAttachmentPods).To(ConsistOf(HaveField("Name", "disk-1-attachment")))
		Expect(details.PVCs).To(ConsistOf(HaveField("Name", "disk-1")))
		Expect(details.Services).To(ConsistOf(HaveField("Name", "web")))
		Expect(details.PDBs).To(ConsistOf(HaveField("Name", "web")))
		Expect(details.Events).To(HaveExactElements(
			HaveField("Message", "second"), HaveField("Message", "scheduled"), HaveField("Message", "first")))
	})

	ginkgo.DescribeTable("have the state", func(expected string, change func(*corev1.Pod)) {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
		change(pod)
		Expect(state(manifest.VMPod{Pod: pod})).To(Equal(expected))
	},
		ginkgo.Entry(nil, "Terminating", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		ginkgo.Entry(nil, "Evicted", func(p *corev1.Pod) { p.Status.Reason = "Evicted" }),
		ginkgo.Entry(nil, "ImagePullBackOff", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		}),
		ginkgo.Entry(nil, "Unschedulable", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no nodes"}}
		}),
		ginkgo.Entry(nil, "Booting", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		ginkgo.Entry(nil, "Pending", func(*corev1.Pod) {}),
	)
})

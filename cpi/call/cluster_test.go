package call

import (
	"context"
	"errors"
	"log/slog"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

const (
	namespace = "bosh"
	node      = "node-1"
)

var _ = Describe("A call", func() {
	var api *memoryapi.Server
	var exitCode int32
	BeforeEach(func() {
		exitCode = 0
		api = memoryapi.New()
		startPods := memoryapi.StartPods(node)
		api.Simulate = func(obj *memoryapi.Object) bool {
			started := startPods(obj)
			if started && obj.GetLabels()[manifest.LabelRole] == manifest.RoleReboot {
				memoryapi.Terminate(obj, exitCode)
			}
			return started
		}
	})
	newCall := func(ctx context.Context) *Call {
		GinkgoHelper()
		client, err := kube.NewForConfig(api.Config(), namespace, 0)
		Expect(err).NotTo(HaveOccurred())
		return &Call{Ctx: ctx, Client: client, ID: NewID(), Started: time.Now(), Director: "d", Log: slog.New(slog.DiscardHandler)}
	}
	newPod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	}
	adopt := func(*corev1.Pod) Decision { return AdoptIf(true) }
	share := func(*corev1.Pod) Decision { return Share }
	replace := func(*corev1.Pod) Decision { return AdoptIf(false) }
	noRemove := func(*corev1.Pod) error { return errors.New("not expected") }

	Describe("that ensures an object", func() {
		It("owns it", func(ctx context.Context) {
			c := newCall(ctx)
			pod, outcome, err := EnsureOwned(c, c.Pods, newPod("web"), adopt, noRemove)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(Created))
			Expect(c.Owns(pod)).To(BeTrue())
		})

		It("adopts the object of an earlier call, which then keeps it", func(ctx context.Context) {
			first, second := newCall(ctx), newCall(ctx)
			pod, _, err := EnsureOwned(first, first.Pods, newPod("web"), adopt, noRemove)
			Expect(err).NotTo(HaveOccurred())
			adopted, outcome, err := EnsureOwned(second, second.Pods, newPod("web"), adopt, noRemove)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(Adopted))
			Expect(second.Owns(adopted)).To(BeTrue())
			Expect(DeleteIfOwned(first, first.Pods, pod, NeverKeep)).To(Equal(Kept))
			Expect(second.DeletePodIfOwned(adopted, NeverKeep)).To(Equal(Deleted))
			Expect(api.Names("pods")).To(BeEmpty())
		})

		It("can share it, and replace it", func(ctx context.Context) {
			first, second := newCall(ctx), newCall(ctx)
			pod, _, err := EnsureOwned(first, first.Pods, newPod("web"), adopt, noRemove)
			Expect(err).NotTo(HaveOccurred())
			shared, outcome, err := EnsureOwned(second, second.Pods, newPod("web"), share, noRemove)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(Shared))
			Expect(first.Owns(shared)).To(BeTrue())
			replaced, outcome, err := EnsureOwned(second, second.Pods, newPod("web"), replace, second.DeletePodAndWait)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(Created))
			Expect(replaced.UID).NotTo(Equal(pod.UID))
		})

		It("does not delete it while it must be kept, or after it was replaced", func(ctx context.Context) {
			c := newCall(ctx)
			pod, _, err := EnsureOwned(c, c.Pods, newPod("web"), adopt, noRemove)
			Expect(err).NotTo(HaveOccurred())
			Expect(DeleteIfOwned(c, c.Pods, pod, func(*corev1.Pod) bool { return true })).To(Equal(Kept))
			former := pod.DeepCopy()
			former.UID = "former"
			Expect(c.DeletePodIfOwned(former, NeverKeep)).To(Equal(Gone), "that Pod does not exist")
			Expect(api.Names("pods")).To(ConsistOf("web"))
		})
	})

	DescribeTable("compares its start with the writes of other calls by the API server's clock", func(ctx context.Context, skew time.Duration) {
		now := time.Now() // by the clock of the host, which is wrong
		api.Now = func() time.Time { return now.Add(skew) }
		c := newCall(ctx)
		c.Started = now
		earlier, _, err := EnsureOwned(c, c.Pods, newPod("earlier"), adopt, noRemove)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.StartedBeforeOwner(earlier)).To(BeFalse())
		api.Now = func() time.Time { return now.Add(skew + time.Minute) }
		later, _, err := EnsureOwned(c, c.Pods, newPod("later"), adopt, noRemove)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.StartedBeforeOwner(later)).To(BeTrue())
	},
		Entry("with the same time", time.Duration(0)),
		Entry("which is a year ahead", 365*24*time.Hour),
		Entry("which is a year behind", -365*24*time.Hour),
	)

	DescribeTable("determines when a call last wrote an object, from", func(entry metav1.ManagedFieldsEntry, adopted bool) {
		created := time.Now().Add(-time.Hour)
		pod := newPod("web")
		pod.CreationTimestamp = metav1.NewTime(created)
		entry.Time = new(metav1.NewTime(created.Add(time.Minute)))
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manifest.ManagedBy, Time: &pod.CreationTimestamp}, entry}
		if adopted {
			created = entry.Time.Time
		}
		Expect(LastWritten(pod)).To(Equal(created))
	},
		Entry("the adoption", metav1.ManagedFieldsEntry{Manager: manifest.ManagedBy}, true),
		Entry("the creation, if a call changed only a subresource", metav1.ManagedFieldsEntry{Manager: manifest.ManagedBy, Subresource: "status"}, false),
		Entry("the creation, if another client changed it", metav1.ManagedFieldsEntry{Manager: "kubectl"}, false),
	)

	Describe("that runs a helper Pod", func() {
		reboot := func(c *Call) error {
			GinkgoHelper()
			vm := manifest.VM{Name: "agent-one", Namespace: namespace, Director: "d"}.Pod()
			return c.RunHelperPod(CodeVMRebootFailed, manifest.RebootPod(vm, "d", stemcells.NodeImageReference), "cannot reboot")
		}

		It("deletes it after it succeeded", func(ctx context.Context) {
			Expect(reboot(newCall(ctx))).To(Succeed())
			Expect(api.Names("pods")).To(BeEmpty())
		})

		It("fails if it failed, and deletes it", func(ctx context.Context) {
			exitCode = 1
			Expect(reboot(newCall(ctx))).To(And(Satisfy(CodeVMRebootFailed.Is), MatchError(HavePrefix("cannot reboot"))))
			Expect(api.Names("pods")).To(BeEmpty())
		})

		It("tries it three times if it cannot be started", func(ctx context.Context) {
			exitCode = 128
			Expect(reboot(newCall(ctx))).To(Satisfy(CodeVMRebootFailed.Is))
			created := 0
			for _, request := range api.Requests() {
				if request == "POST /api/v1/namespaces/bosh/pods" {
					created++
				}
			}
			Expect(created).To(Equal(maxHelperPodAttempts))
		})

		It("explains a timeout by the state of the Pod", func() {
			api.Simulate = nil
			memoryapi.InVirtualTime(suite, func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				Expect(reboot(newCall(ctx))).To(And(Satisfy(CodeVMRebootFailed.Is), MatchError(ContainSubstring("no events or status messages"))))
			})
		})
	})

	DescribeTable("on a node that is", func(ctx context.Context, change func(*corev1.Node), code string) {
		ready := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
		change(ready)
		if ready.Name != "" {
			api.Add("nodes", "", ready)
		}
		vm := newPod("agent-one")
		vm.Spec.NodeName = node
		err := newCall(ctx).CheckNodeAvailable(manifest.VMPod{Pod: vm})
		var typed *Error
		Expect(errors.As(err, &typed)).To(Equal(code != ""))
		if typed != nil {
			Expect(typed.Code()).To(Equal(code))
		}
	},
		Entry("ready continues", func(*corev1.Node) {}, ""),
		Entry("unreachable fails", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, "node-unreachable"),
		Entry("out of service fails", func(n *corev1.Node) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		}, "node-out-of-service"),
		Entry("deleted fails", func(n *corev1.Node) { n.Name = "" }, "node-out-of-service"),
	)

	It("reports the scheduler's message once, and why a PVC has no volume", func(ctx context.Context) {
		c := newCall(ctx)
		pod := newPod("web")
		pod.UID = "pod"
		pod.Spec.Volumes = []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no nodes"}}
		for name, uid := range map[string]types.UID{"data": "pvc", "web-tmp": "ephemeral"} {
			api.Add("persistentvolumeclaims", namespace, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}})
		}
		for name, event := range map[string]corev1.Event{
			"a": {Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Message: "no nodes", InvolvedObject: corev1.ObjectReference{UID: "pod"}},
			"b": {Type: corev1.EventTypeNormal, Reason: "ExternalProvisioning", Message: "waiting for driver.example.com", InvolvedObject: corev1.ObjectReference{UID: "pvc"}},
			"c": {Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "no space", InvolvedObject: corev1.ObjectReference{UID: "ephemeral"}},
		} {
			event.Name = name
			api.Add("events", namespace, &event)
		}
		Expect(c.DiagnosePod(pod)).To(Equal("not scheduled: no nodes; PVC data has no volume: ExternalProvisioning: waiting for driver.example.com; " +
			"PVC web-tmp has no volume: ProvisioningFailed: no space"))
	})

	It("sets metadata, and replaces nothing else", func(ctx context.Context) {
		c := newCall(ctx)
		pod := newPod("web")
		pod.Labels, pod.Annotations = map[string]string{manifest.LabelRole: manifest.RoleVM, manifest.Prefix + "index": "0"}, map[string]string{"a": "b"}
		_, err := c.Pods.Create(ctx, pod)
		Expect(err).NotTo(HaveOccurred())
		desired := manifest.BuildMetadata(map[string]any{"job": "web", "index": "no label", "id": "no label"})
		patched, err := PatchMetadata(ctx, c.Pods, "web", manifest.RoleVM, desired)
		Expect(err).NotTo(HaveOccurred())
		Expect(patched.Labels).To(Equal(map[string]string{manifest.LabelRole: manifest.RoleVM, manifest.Prefix + "job": "web"}))
		Expect(patched.Annotations).To(And(HaveKeyWithValue("a", "b"), HaveKeyWithValue(manifest.Prefix+"index", "no label")))
		_, err = PatchMetadata(ctx, c.Pods, "none", manifest.RoleVM, desired)
		Expect(err).To(MatchError(kube.ErrNotFound))
	})

	It("sets no metadata on an object with another role", func(ctx context.Context) {
		c := newCall(ctx)
		created, err := c.Pods.Create(ctx, newPod("database"))
		Expect(err).NotTo(HaveOccurred())
		desired := manifest.BuildMetadata(map[string]any{"job": "web"})
		_, err = PatchMetadata(ctx, c.Pods, "database", manifest.RoleVM, desired)
		Expect(err).To(MatchError(kube.ErrNotFound))
		Expect(c.Pods.Get(ctx, "database")).To(HaveField("ResourceVersion", created.ResourceVersion))
	})

	It("finds the Pods of a VM, and no VM with an invalid CID", func(ctx context.Context) {
		c := newCall(ctx)
		pod := newPod("agent-one")
		pod.Labels = map[string]string{manifest.LabelVM: "agent-one"}
		_, err := c.Pods.Create(ctx, pod)
		Expect(err).NotTo(HaveOccurred())
		list, _, err := c.ListVMPods("agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(HaveLen(1))
		_, _, err = c.ListVMPods("i-ABC")
		Expect(err).To(Satisfy(CodeVMNotFound.Is))
		_, err = c.GetPodTemplate("agent-one")
		Expect(err).To(Satisfy(CodeVMNotFound.Is))
	})

	It("has the latest object as its subject", func(ctx context.Context) {
		c := newCall(ctx)
		c.SetSubject(corev1.ObjectReference{Name: "ignored"})
		c.Subject = &Subject{}
		c.SetSubject(corev1.ObjectReference{Name: "disk"})
		c.SetDetail("to 64 MiB")
		Expect(*c.Subject).To(Equal(Subject{Object: corev1.ObjectReference{Name: "disk"}, Detail: "to 64 MiB"}))
	})

	It("has a detached copy that outlives it", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		c := newCall(ctx)
		cancel()
		detached, cancelDetached := c.Detached(time.Minute)
		defer cancelDetached()
		Expect(detached.Ctx.Err()).NotTo(HaveOccurred())
		bounded, cancelBounded := c.WithTimeout(time.Minute)
		defer cancelBounded()
		Expect(bounded.Ctx.Err()).To(HaveOccurred())
	})
})

var _ = DescribeTable("AsBOSH explains", func(cause error, code Code) {
	explained := AsBOSHError(&kube.Error{Action: "get Pod bosh/web", Kind: cause, Err: errors.New("x")})
	Expect(explained).To(Satisfy(code.Is))
	Expect(explained.WithCode()).To(MatchError(HaveSuffix("[" + code.Name + "]")))
	Expect(explained.WithCode().WithCode().Error()).To(Equal(explained.WithCode().Error()))
},
	Entry(nil, kube.ErrUnreachable, CodeAPIUnreachable), Entry(nil, kube.ErrNotServed, CodeAPINotKubernetes),
	Entry(nil, kube.ErrNoCredentials, CodeCredentialsMissing), Entry(nil, kube.ErrUnauthorized, CodeCredentialsRejected),
	Entry(nil, kube.ErrWebhook, CodeWebhookFailed), Entry(nil, kube.ErrDenied, CodeRequestDenied), Entry(nil, kube.ErrConflict, CodeClusterError),
)

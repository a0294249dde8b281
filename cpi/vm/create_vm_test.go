package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("create_vm", func() {
	var env *testEnv
	BeforeEach(func() { env = newTestEnv() })

	It("creates a Pod, and a Secret that it owns, with the agent's settings", func() {
		vm := env.createVM(`{}`)
		Expect(vm).To(Equal("agent-one"))
		secret, err := env.Secrets.Get(env.Ctx, vm)
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", env.pod(vm).UID)))
		Expect(env.Subject.Object.Name).To(Equal(vm))
	})

	It("requests the dynamic address of the Pod, so that the VM keeps it", func() {
		Expect(env.pod(env.createVM(`{}`)).Annotations).To(HaveKeyWithValue(manifest.AnnotationRequestedAddresses, "10.0.0.1"))
	})

	It("adopts the VM of an earlier attempt with the same request", func() {
		vm := env.createVM(`{}`)
		uid := env.pod(vm).UID
		env.Session = env.newSession(time.Minute)
		env.createVM(`{}`)
		Expect(env.pod(vm).UID).To(Equal(uid))
		Expect(manifest.CallOf(env.pod(vm))).To(Equal(env.ID))
	})

	It("replaces the VM of an earlier attempt with another request", func() {
		vm := env.createVM(`{}`)
		uid := env.pod(vm).UID
		env.createVM(`{"cpu": 1}`)
		Expect(env.pod(vm).UID).NotTo(Equal(uid))
	})

	DescribeTable("rejects an invalid request before it creates anything", func(code call.Code, message string, change func(*Request)) {
		invalid := request("one", `{}`)
		change(&invalid)
		_, err := env.Create(invalid)
		Expect(err).To(And(haveCode(code), MatchError(ContainSubstring(message))))
		Expect(env.objects()).To(BeEmpty())
	},
		Entry("agent ID", call.CodeInvalidRequest, "agent_id", func(r *Request) { r.AgentID = "A_b" }),
		Entry("stemcell", call.CodeStemcellNotFound, "stemcell", func(r *Request) { r.Stemcell = "a b" }),
		Entry("property", call.CodeInvalidProperty, "cloud_properties", func(r *Request) { r.Properties = json.RawMessage(`{"cpus": 1}`) }),
		Entry("group", call.CodeInvalidProperty, "env.bosh.group must be a string", func(r *Request) { r.Env = json.RawMessage(`{"bosh": {"group": 1}}`) }),
		Entry("env of another type", call.CodeInvalidProperty, "env must be a hash, not a list", func(r *Request) { r.Env = json.RawMessage(`[]`) }),
		Entry("mount options of another type", call.CodeInvalidProperty, "env.persistent_disk_mount_options must be a list",
			func(r *Request) { r.Env = json.RawMessage(`{"persistent_disk_mount_options": "noatime"}`) }),
		Entry("filesystem of persistent disks", call.CodeInvalidProperty, `env.persistent_disk_fs "btrfs" is not valid; use ext4 or xfs`,
			func(r *Request) { r.Env = json.RawMessage(`{"persistent_disk_fs": "btrfs"}`) }),
		Entry("stemcell of another CPI", call.CodeStemcellNotFound, "upload the stemcell again", func(r *Request) { r.Stemcell = "ami-0123456789" }),
		Entry("budget", call.CodeInvalidProperty, "exactly one of", func(r *Request) { r.Properties = json.RawMessage(`{"disruption_budget": {}}`) }),
		Entry("budget without a group", call.CodeInvalidProperty, "requires env.bosh.group", func(r *Request) {
			r.Properties, r.Env = json.RawMessage(`{"disruption_budget": {"max_unavailable": 1}}`), nil
		}),
		Entry("disks of a VM that cannot mount devices", call.CodeInvalidProperty, "disk_strategy: recreate", func(r *Request) {
			r.Properties, r.Disks = json.RawMessage(`{"security": {"privileged": false}}`), []string{"disk-1"}
		}),
		Entry("network for disk_strategy: recreate", call.CodeInvalidProperty, "keep_dynamic_addresses", func(r *Request) {
			r.Properties, env.Network.KeepDynamicAddresses = json.RawMessage(recreate), false
		}),
	)

	DescribeTable("deletes the VM if it does not start", func(code call.Code, retry bool, start func(status *corev1.PodStatus)) {
		env.startVM = start
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			_, err := env.Create(request("one", `{}`))
			Expect(err).To(haveCode(code))
			Expect(call.AsBOSHError(err).CanRetry()).To(Equal(retry))
		})
		Expect(env.objects()).To(BeEmpty())
	},
		Entry("in time", call.CodeVMStartTimeout, true, func(s *corev1.PodStatus) { s.ContainerStatuses[0].Started = new(false) }),
		Entry("because its init process ends", call.CodeVMStartFailed, true, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed }),
		Entry("because its image is invalid", call.CodeVMStartFailed, false, func(s *corev1.PodStatus) {
			s.ContainerStatuses[0] = corev1.ContainerStatus{Name: s.ContainerStatuses[0].Name, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"},
			}}
		}),
	)

	It("keeps a VM that a repeated call adopted when the first call fails", func() {
		env.startVM = func(s *corev1.PodStatus) { s.ContainerStatuses[0].Started = new(false) }
		memoryapi.InVirtualTime(suite, func() {
			first, second := env.newSession(time.Hour), env.newSession(2*time.Hour)
			failed := make(chan error)
			go func() {
				_, err := first.Create(request("one", `{}`))
				failed <- err
			}()
			Eventually(env.objects).Should(ContainElement("pods/agent-one"))
			go func() {
				_, err := second.Create(request("one", `{}`))
				failed <- err
			}()
			Eventually(func() string { return manifest.CallOf(env.pod("agent-one")) }).Should(Equal(second.ID))
			Expect(<-failed).To(haveCode(call.CodeVMStartTimeout))
			Expect(env.objects()).To(ContainElement("pods/agent-one"))
			Expect(<-failed).To(haveCode(call.CodeVMStartTimeout))
			Expect(env.objects()).To(BeEmpty())
		})
	})

	DescribeTable("warns of a CPU limit that is too small for the agent:", func(properties string, matcher types.GomegaMatcher) {
		var log bytes.Buffer
		env.Log = slog.New(slog.NewTextHandler(&log, nil))
		env.createVM(properties)
		Expect(log.String()).To(matcher)
	},
		Entry("cpu", `{"cpu": "20m"}`, And(ContainSubstring("vm=agent-one limit=20m"), ContainSubstring("cloud_properties.cpu or resources.limits.cpu"))),
		Entry("a native limit", `{"resources": {"limits": {"cpu": "99m"}}}`, ContainSubstring("limit=99m")),
		Entry("not with enough", `{"cpu": "100m"}`, BeEmpty()),
		Entry("not without a limit", `{"resources": {"requests": {"cpu": "20m"}}}`, BeEmpty()),
	)

	static := func(agent string) Request {
		r := request(agent, `{}`)
		Expect(json.Unmarshal([]byte(`{"default": {"type": "manual", "ip": "10.0.0.1"}}`), &r.Networks)).To(Succeed())
		return r
	}

	It("deletes the VM if it does not get the requested address", func() {
		env.startVM = func(s *corev1.PodStatus) { s.PodIP, s.PodIPs = "10.0.0.9", []corev1.PodIP{{IP: "10.0.0.9"}} }
		_, err := env.Create(static("one"))
		Expect(err).To(And(haveCode(call.CodeAddressNotAssigned), MatchError(ContainSubstring("requests 10.0.0.1"))))
		Expect(env.objects()).To(BeEmpty())
	})

	It("does not delete the VM of a later call with the same address", func() {
		late := env.newSession(time.Minute)
		late.Started = late.Started.Add(-time.Minute)
		_, err := env.Create(static("next"))
		Expect(err).NotTo(HaveOccurred())
		_, err = late.Create(static("late"))
		Expect(err).NotTo(HaveOccurred())
		Expect(env.api.Names("pods")).To(ContainElement("agent-next"))
	})

	It("deletes an orphaned VM with the same address if the host of its call has a fast clock", func() {
		env.ID = "03000000-0000-7000-8000-000000000000" // of the year 2074
		_, err := env.Create(static("orphan"))
		Expect(err).NotTo(HaveOccurred())
		_, err = env.newSession(time.Minute).Create(static("next"))
		Expect(err).NotTo(HaveOccurred())
		Expect(env.api.Names("pods")).To(ConsistOf("agent-next"))
	})

	It("deletes an orphaned VM with the same address, and no other", func() {
		for _, agent := range []string{"orphan", "next"} {
			_, err := env.Create(static(agent))
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(env.api.Names("pods")).To(ConsistOf("agent-next"))
		Expect(env.SetMetadata("agent-next", map[string]any{"job": "web"})).To(Succeed())
		_, err := env.Create(static("third"))
		Expect(err).To(haveCode(call.CodeAddressInUse))
		Expect(env.api.Names("pods")).To(ConsistOf("agent-next"))
	})

	It("fails if the VM of create-env has the address, and names a remedy without a director", func() {
		_, err := env.Create(static("first"))
		Expect(err).NotTo(HaveOccurred())
		Expect(env.SetMetadata("agent-first", map[string]any{"director": "bosh-init", "deployment": "bosh", "job": "bosh", "index": "0"})).To(Succeed())
		_, err = env.Create(static("next"))
		Expect(err).To(MatchError(HaveSuffix("VM agent-first (bosh/0 of deployment bosh) has it; " +
			"if the state file of create-env does not contain that VM, run `kubectl delete pod --namespace bosh agent-first`")))
	})

	DescribeTable("avoids a node that cannot attach the volumes of the VM's disks", func(properties string) {
		cid := env.createDisk(`{}`)
		env.api.Add("persistentvolumes", "", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-" + cid},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: cid},
			}}})
		env.api.Add("csinodes", "", &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "csi", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(0))}}},
		}})
		var attempts int
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool { // the scheduler chooses a node without a limit after the first attempt
			if obj.GetLabels()[manifest.LabelRole] == manifest.RoleVM {
				if attempts++; attempts > 2 {
					return memoryapi.StartPods("node-2")(obj)
				}
			}
			return simulate(obj)
		}
		env.addNode("node-2")
		r := request("one", properties)
		r.Disks = []string{cid, "disk-none"}
		_, err := env.Create(r)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pod("agent-one").Spec.NodeName).To(Equal("node-2"))
		Expect(env.pod("agent-one").Spec.Affinity.NodeAffinity).NotTo(BeNil())
	},
		Entry("hot-plug", `{}`),
		Entry("recreate", recreate),
	)

	Describe("with Services and a disruption budget", func() {
		const properties = `{"services": [{"name": "web", "ports": [{"port": 80}]}], "disruption_budget": {"min_available": 1}}`

		It("creates them once for all VMs of the group", func() {
			env.createVM(properties)
			_, err := env.Create(request("two", properties))
			Expect(err).NotTo(HaveOccurred())
			Expect(env.objects()).To(ContainElement("services/web"))
			service, err := env.Services.Get(env.Ctx, "web")
			Expect(err).NotTo(HaveOccurred())
			Expect(service.OwnerReferences).To(HaveLen(2))
		})

		It("rejects a Service of another director", func() {
			env.createVM(properties)
			env.Session = env.newSession(time.Minute)
			env.Director = "other"
			_, err := env.Create(request("two", properties))
			Expect(err).To(haveCode(call.CodeServiceExists))
			Expect(env.api.Names("pods")).To(ConsistOf("agent-one"))
		})

		It("counts a VM with disk_strategy: recreate without a Pod", func() {
			const properties = `{"disruption_budget": {"max_unavailable": 1}, "disk_strategy": "recreate", "ephemeral_disk": {"size": 64}}`
			env.createVM(properties)
			env.deletePod("agent-one")
			_, err := env.Create(request("two", properties))
			Expect(err).NotTo(HaveOccurred())
			budget, err := env.PodDisruptionBudgets().Get(env.Ctx, manifest.PDBName("web"))
			Expect(err).NotTo(HaveOccurred())
			Expect(budget.Spec.MinAvailable.IntVal).To(BeEquivalentTo(1))
		})

		DescribeTable("adapts the budget to the size of the group", func(first string) {
			const maxUnavailable = `{"disruption_budget": {"max_unavailable": 1}}`
			env.createVM(first)
			_, err := env.Create(request("two", maxUnavailable))
			Expect(err).NotTo(HaveOccurred())
			budget := func() string {
				GinkgoHelper()
				current, err := env.PodDisruptionBudgets().Get(env.Ctx, manifest.PDBName("web"))
				Expect(err).NotTo(HaveOccurred())
				return current.Spec.MinAvailable.String()
			}
			Expect(budget()).To(Equal("1"))
			Expect(env.Delete("agent-one")).To(Succeed())
			Expect(budget()).To(Equal("0"))
		},
			Entry("of VMs with the budget", `{"disruption_budget": {"max_unavailable": 1}}`),
			Entry("of VMs that were created before the budget was set", `{}`),
			Entry("of VMs with disk_strategy: recreate", `{"disruption_budget": {"max_unavailable": 1}, "disk_strategy": "recreate", "ephemeral_disk": {"size": 64}}`),
			Entry("of VMs that were created with another budget", `{"disruption_budget": {"min_available": 1}}`),
		)
	})
})

var _ = Describe("The error of create_vm", func() {
	typedError := func(err error) *call.Error {
		GinkgoHelper()
		var typed *call.Error
		Expect(errors.As(creationError(err), &typed)).To(BeTrue())
		return typed
	}

	It("is retryable if the cluster, not the request, was the cause", func() {
		unreachable := typedError(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("x")})
		Expect(call.VMCreationFailed.Is(unreachable)).To(BeTrue())
		Expect(unreachable.CanRetry()).To(BeTrue())
		for _, kind := range []error{kube.ErrDenied, kube.ErrUnauthorized, kube.ErrNoCredentials} {
			Expect(typedError(&kube.Error{Kind: kind, Err: errors.New("x")}).CanRetry()).To(BeFalse(), "%v", kind)
		}
	})

	It("keeps the type of its cause", func() {
		Expect(typedError(call.CodeNetworkUnsupported.Errorf("x")).Type()).To(BeEquivalentTo(call.NotSupported))
	})
})

var _ = Describe("The digest of a create_vm request", func() {
	request := func(agentID string) Request {
		GinkgoHelper()
		var networks network.Networks
		Expect(json.Unmarshal([]byte(`{"default":{"type":"manual","ip":"10.0.0.7","netmask":"255.255.255.0","gateway":"10.0.0.1"}}`), &networks)).To(Succeed())
		return Request{AgentID: agentID, Stemcell: "registry.example.com/stemcell@sha256:1", Properties: json.RawMessage(`{"cpu": 2}`),
			Networks: networks, Disks: []string{"disk-1"}, Env: json.RawMessage(`{"bosh": {"group": "web"}}`)}
	}

	It("is the same in all releases, so that a retried call adopts its VM after an upgrade of the CPI", func() {
		Expect(request("agent-1").digest()).To(Equal("db5c33aa29d5b1fbf7f8e22281a992426e648a5d0e0055c6b444b9bec65e75f8"))
	})

	It("differs for another request", func() {
		first, err := request("agent-1").digest()
		Expect(err).NotTo(HaveOccurred())
		Expect(request("agent-2").digest()).NotTo(Equal(first))
	})
})

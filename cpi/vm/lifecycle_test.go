package vm

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("A VM", func() {
	var env *testEnv
	BeforeEach(func() { env = newTestEnv() })

	for _, properties := range []string{`{}`, recreate} {
		Describe("with "+properties, func() {
			It("exists until it is deleted", func() {
				vm := env.createVM(properties)
				Expect(env.Has(vm)).To(BeTrue())
				Expect(env.Delete(vm)).To(Succeed())
				Expect(env.Has(vm)).To(BeFalse())
				Expect(env.Delete(vm)).To(haveCode(call.CodeVMNotFound))
				Expect(env.objects()).To(BeEmpty())
			})

			It("gets the metadata of the director", func() {
				vm := env.createVM(properties)
				Expect(env.SetMetadata(vm, map[string]any{"job": "web"})).To(Succeed())
				Expect(env.pod(vm).Labels).To(HaveKeyWithValue(manifest.Prefix+"job", "web"))
				Expect(env.SetMetadata("agent-none", map[string]any{})).To(haveCode(call.CodeVMNotFound))
			})

			It("restarts", func() {
				vm := env.createVM(properties)
				Expect(env.Reboot(vm)).To(Succeed())
				Expect(env.Has(vm)).To(BeTrue())
			})

			It("attaches and detaches a disk", func() {
				vm, cid := env.createVM(`{}`), env.createDisk(`{"volume_mode": "Block"}`)
				Expect(env.Attach(vm, cid)).To(Equal(DiskHint{Path: manifest.DevicePath(cid)}))
				Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
				Expect(env.Detach(vm, cid)).To(Succeed())
				Expect(env.GetDisks(vm)).To(BeEmpty())
				Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
			})

			It("releases its disks when it is deleted", func() {
				vm, cid := env.createVM(`{}`), env.createDisk(`{"volume_mode": "Block"}`)
				_, err := env.Attach(vm, cid)
				Expect(err).NotTo(HaveOccurred())
				Expect(env.Delete(vm)).To(Succeed())
				Expect(env.objects()).To(BeEmpty())
				owner, ok := env.pvc(cid).Owner()
				Expect(ok).To(BeTrue())
				Expect(owner).To(BeZero())
			})
		})
	}

	DescribeTable("gets its disk in reboot_vm if the attachment Pod", func(prepare func(pod *corev1.Pod), deletedBefore bool) {
		vm, cid := env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		name := manifest.AttachmentName(cid)
		previous := env.pod(name).UID
		env.updatePod(name, prepare)
		if deletedBefore {
			env.deletePod(name)
		}
		simulate, restarted := env.api.Simulate, make(chan struct{})
		env.api.Simulate = func(obj *object) bool {
			switch {
			case obj.GetLabels()[manifest.LabelRole] == manifest.RoleReboot && obj.GetDeletionTimestamp() == nil:
				if !memoryapi.StartPods(node)(obj) {
					return false
				}
				memoryapi.Terminate(obj, 0)
				go func() {
					defer GinkgoRecover()
					env.updatePod(vm, func(pod *corev1.Pod) { // the VM waits for its disk
						pod.Status.ContainerStatuses[0].RestartCount++
						pod.Status.ContainerStatuses[0].Started = new(false)
					})
					close(restarted)
					if deletedBefore {
						env.updatePod(name, func(pod *corev1.Pod) { pod.Finalizers = nil })
						env.deletePod(name)
					}
				}()
				return true
			case obj.GetName() == name && obj.GetUID() != previous && simulate(obj):
				go func() {
					<-restarted
					env.updatePod(vm, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Started = new(true) })
				}()
				return true
			}
			return simulate(obj)
		}
		Expect(env.Reboot(vm)).To(Succeed())
		Expect(env.pod(name).UID).NotTo(Equal(previous))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(Equal(manifest.DiskOwner{VM: vm, Pod: env.pod(name).UID}))
	},
		Entry("is being deleted", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/wait"} }, true),
		Entry("is finished", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, false),
	)

	DescribeTable("leaves no objects of a call that ends while it creates them, before it has the response:",
		func(resource string, run func(vm, cid string) error) {
			vm, cid := env.createVM(`{}`), env.createDisk(`{}`)
			previous := env.objects()
			ctx, cancel := context.WithCancel(env.Ctx)
			env.Ctx = ctx
			env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/"+resource) || ctx.Err() != nil {
					return false
				}
				env.api.Handle(httptest.NewRecorder(), r)
				cancel()
				panic(http.ErrAbortHandler)
			}
			Expect(run(vm, cid)).To(HaveOccurred())
			Expect(ctx.Err()).To(HaveOccurred())
			Expect(env.objects()).To(ConsistOf(previous))
			owner, _ := env.pvc(cid).Owner()
			Expect(owner).To(BeZero())
		},
		Entry("attach_disk", "pods", func(vm, cid string) error {
			_, err := env.Attach(vm, cid)
			return err
		}),
		Entry("create_vm", "pods", func(string, string) error {
			_, err := env.Create(request("two", `{}`))
			return err
		}),
		Entry("create_vm with disk_strategy: recreate", "podtemplates", func(string, string) error {
			_, err := env.Create(request("two", recreate))
			return err
		}),
		Entry("reboot_vm", "pods", func(vm, _ string) error { return env.Reboot(vm) }),
	)

	It("does not exist under the name of another Pod", func() {
		vm, cid := env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		attachment := manifest.AttachmentName(cid)
		Expect(env.Has(attachment)).To(BeFalse())
		Expect(env.Reboot(attachment)).To(haveCode(call.CodeVMNotFound))
	})

	It("cannot be rebooted after its Pod ended", func() {
		vm := env.createVM(`{}`)
		env.updatePod(vm, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		Expect(env.Reboot(vm)).To(haveCode(call.CodeVMNotRunning))
		Expect(env.Reboot("agent-none")).To(haveCode(call.CodeVMNotFound))
	})

	It("releases its disks even if nothing else of it exists", func() {
		vm, cid := env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.deletePod(vm)
		Expect(env.objects()).To(BeEmpty(), "the garbage collector deletes the attachment Pod")
		Expect(env.Delete(vm)).To(Succeed())
		Expect(env.Delete(vm)).To(haveCode(call.CodeVMNotFound))
	})

	It("with disk_strategy: recreate gets a new Pod if it is missing", func() {
		vm := env.createVM(recreate)
		uid := env.pod(vm).UID
		env.deletePod(vm)
		Expect(env.Has(vm)).To(BeTrue())
		Expect(env.pod(vm).UID).NotTo(Equal(uid))
	})

	Describe("with disk_strategy: recreate and a disk", func() {
		var vm, cid string
		BeforeEach(func() {
			vm, cid = env.createVM(recreate), env.createDisk(`{"volume_mode": "Block"}`)
			_, err := env.Attach(vm, cid)
			Expect(err).NotTo(HaveOccurred())
			env.deletePod(vm)
		})

		It("does not start with the disk if it was detached after the call read the PodTemplate", func() {
			startedWithDisk, simulate := false, env.api.Simulate
			env.api.Simulate = func(obj *object) bool {
				started := simulate(obj)
				if started && obj.GetKind() == "Pod" && obj.GetName() == vm {
					var pod corev1.Pod
					memoryapi.FromObject(obj, &pod)
					startedWithDisk = startedWithDisk || len(manifest.DiskCIDs(pod.Spec)) > 0
				}
				return started
			}
			detached := false
			env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && !detached {
					detached = true
					_, err := recreateStrategy{s: env.newSession(time.Minute)}.changeTemplate(vm, func(*corev1.PodTemplate) (manifest.TemplateChange, error) {
						return manifest.TemplateChange{RemoveDisk: cid}, nil
					})
					Expect(err).NotTo(HaveOccurred())
				}
				return false
			}
			Expect(env.Has(vm)).To(BeTrue())
			Expect(startedWithDisk).To(BeFalse())
			Expect(manifest.DiskCIDs(env.pod(vm).Spec)).To(BeEmpty())
		})

		It("starts in the next call if a call is killed after it created the Pod", func() {
			killed := env.newSession(time.Minute)
			ctx, kill := context.WithCancel(killed.Ctx)
			killed.Ctx = ctx
			env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/pods/"+vm) {
					kill()
				}
				return ctx.Err() != nil && r.Method == http.MethodPatch
			}
			_, err := killed.Has(vm)
			Expect(err).To(HaveOccurred())
			Expect(env.pod(vm).Status.Phase).To(BeEmpty(), "it is gated")
			env.api.Intercept = nil
			Expect(env.Has(vm)).To(BeTrue())
			Expect(env.pod(vm).Status.Phase).To(Equal(corev1.PodRunning))
		})
	})

	It("with disk_strategy: recreate keeps its Pod if another client deleted the PVC of /var/vcap", func() {
		vm := env.createVM(recreate)
		uid := env.pod(vm).UID
		pvc, err := env.PVCs.Get(env.Ctx, manifest.EphemeralPVCName(vm))
		Expect(err).NotTo(HaveOccurred())
		env.updatePVC(pvc.Name, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{"kubernetes.io/pvc-protection"} })
		Expect(env.PVCs.Delete(env.Ctx, pvc)).To(Succeed())
		Expect(env.Reboot(vm)).To(And(haveCode(call.CodeVMRecreateFailed), MatchError(ContainSubstring("recreate the VM"))))
		Expect(env.pod(vm).UID).To(Equal(uid))
	})

	It("with disk_strategy: recreate keeps its node without a disk, too", func() {
		vm := env.createVM(recreate)
		Expect(env.Reboot(vm)).To(Succeed())
		Expect(manifest.RequiredNode(env.pod(vm))).To(Equal(node))
	})

	It("with disk_strategy: recreate gets a lost attachment Pod that preempts no other VM", func() {
		vm, cid := env.createVM(recreate), env.createDisk(`{"volume_mode": "Block"}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.evictAttachment(cid)
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		Expect(env.pod(manifest.AttachmentName(cid)).Spec.Affinity.PodAffinity).NotTo(BeNil())
	})

	It("with disk_strategy: recreate fails if its new Pod has another address", func() {
		vm := env.createVM(recreate)
		env.startVM = func(s *corev1.PodStatus) { s.PodIP, s.PodIPs = "10.0.0.9", []corev1.PodIP{{IP: "10.0.0.9"}} }
		Expect(env.Reboot(vm)).To(haveCode(call.CodeVMAddressChanged))
	})

	It("is as large as vm_resources", func() {
		Expect(Calculate(Resources{CPU: 1, RAM: 2, EphemeralDisk: 3})).To(Equal(Calculated{CPU: 1, Memory: 2, EphemeralDisk: 3}))
		_, err := Calculate(Resources{CPU: 1})
		Expect(err).To(haveCode(call.CodeInvalidRequest))
	})
})

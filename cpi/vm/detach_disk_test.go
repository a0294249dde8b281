package vm

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("detach_disk", func() {
	var env *testEnv
	var vm, cid string
	BeforeEach(func() {
		env = newTestEnv()
		vm, cid = env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
	})

	It("keeps a disk that is in use attached, and names its users", func() {
		env.check.findInUse()
		Expect(env.Detach(vm, cid)).To(And(haveCode(call.CodeDiskInUse), MatchError(ContainSubstring("mounted at /var/vcap/store"))))
		Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
		env.check = checkResult{}
		Expect(env.Detach(vm, cid)).To(Succeed())
	})

	DescribeTable("deletes the attachment Pod of a free disk", func(containers []corev1.ContainerStatus, gracePeriod *int64) {
		name := manifest.AttachmentName(cid)
		env.updatePod(name, func(pod *corev1.Pod) {
			pod.Finalizers = []string{"test/kept"}
			for _, status := range containers {
				pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: status.Name},
				})
			}
			pod.Status.EphemeralContainerStatuses = containers
		})
		ended := false
		env.api.Simulate = func(obj *object) bool {
			if obj.GetName() != name || obj.GetDeletionTimestamp() == nil {
				return env.simulate(obj)
			}
			memoryapi.Terminate(obj, 0)
			first := !ended
			ended = true
			return first
		}
		Expect(env.Detach(vm, cid)).To(Succeed())
		Expect(env.pod(name).DeletionGracePeriodSeconds).To(Equal(gracePeriod))
	},
		Entry("with its own grace period", nil, nil),
		Entry("with a short grace period, if a shell of kubectl debug runs in it",
			[]corev1.ContainerStatus{{Name: "debugger", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, new(int64(30))),
	)

	It("recreates an attachment Pod that another client deleted, to check the disk", func() {
		env.deletePod(manifest.AttachmentName(cid))
		env.check.findInUse()
		Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskInUse))
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
	})

	It("recreates an attachment Pod that was evicted, to check the disk", func() {
		evicted := env.evictAttachment(cid)
		env.check.findInUse()
		Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskInUse))
		Expect(env.pod(manifest.AttachmentName(cid)).UID).NotTo(Equal(evicted))
	})

	It("checks a disk with an attachment Pod that starts after detach_disk read it", func() {
		name := manifest.AttachmentName(cid)
		running := env.pod(name).Status
		env.api.Simulate = func(obj *object) bool {
			return obj.GetKind() == "Pod" && memoryapi.EndEphemeralContainers(obj, env.check.exitCode, env.check.message)
		}
		env.updatePod(name, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} })
		started := false
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if changes := r.Method == http.MethodDelete || r.Method == http.MethodPatch; changes && !started {
				started = true
				env.updatePod(name, func(pod *corev1.Pod) { pod.Status = running })
			}
			return false
		}
		env.check.findInUse()
		Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskInUse))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.VM).To(Equal(vm))
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
	})

	It("deletes an attachment Pod that never ran, without a check", func() {
		name := manifest.AttachmentName(cid)
		env.api.Simulate = nil
		env.updatePod(name, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} })
		Expect(env.Detach(vm, cid)).To(Succeed())
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(BeZero())
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
	})

	It("releases the disk of a deleted attachment Pod that never ran, and is reported as failed", func() {
		name := manifest.AttachmentName(cid)
		env.api.Simulate = nil
		env.updatePod(name, func(pod *corev1.Pod) {
			pod.Finalizers, pod.Status = []string{"test/kept"}, corev1.PodStatus{Phase: corev1.PodPending}
		})
		env.api.Simulate = func(obj *object) bool { // as the kubelet, which sets a terminal phase before it removes a Pod
			var pod corev1.Pod
			if obj.GetName() != name || obj.GetDeletionTimestamp() == nil {
				return false
			}
			memoryapi.FromObject(obj, &pod)
			if pod.Status.Phase == corev1.PodFailed {
				return false
			}
			pod.Status.Phase = corev1.PodFailed
			obj.Object = memoryapi.ToObject(&pod).Object
			go func() {
				env.updatePod(name, func(pod *corev1.Pod) { pod.Finalizers = nil })
				env.deletePod(name)
			}()
			return true
		}
		previous := len(env.api.Requests())
		Expect(env.Detach(vm, cid)).To(Succeed())
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(BeZero())
		Expect(env.api.Requests()[previous:]).NotTo(ContainElement(HavePrefix("POST")), "no other attachment Pod")
	})

	It("runs no exclusivity check if the VM Pod finished", func() {
		env.check.findInUse()
		env.updatePod(vm, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		env.updatePod(manifest.AttachmentName(cid), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		Expect(env.Detach(vm, cid)).To(Succeed())
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(BeZero())
	})

	DescribeTable("fails if", func(code call.Code, prepare func()) {
		prepare()
		Expect(env.Detach(vm, cid)).To(haveCode(code))
	},
		Entry("the VM does not have the disk", call.CodeDiskNotAttached, func() { cid = env.createDisk(`{}`) }),
		Entry("the disk does not exist", call.CodeDiskNotFound, func() { cid = "disk-none" }),
		Entry("the VM does not exist", call.CodeVMNotFound, func() { vm, cid = "agent-none", env.createDisk(`{}`) }),
	)
})

var _ = Describe("A disk in use with a PVC that another client deleted", func() {
	for name, properties := range map[string]string{"by a VM with hot-plugged disks": `{}`, "by a VM with disk_strategy: recreate": recreate} {
		Describe(name, func() {
			var env *testEnv
			var vm, cid string
			BeforeEach(func() {
				env = newTestEnv()
				vm, cid = env.createVM(properties), env.createDisk(`{"volume_mode": "Block"}`)
				_, err := env.Attach(vm, cid)
				Expect(err).NotTo(HaveOccurred())
				env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{"kubernetes.io/pvc-protection"} })
				env.api.Add("persistentvolumes", "", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: env.pvc(cid).Spec.VolumeName},
					Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete}})
				Expect(env.PVCs.Delete(env.Ctx, env.pvc(cid).PVC)).To(Succeed())
				env.Session = env.newSession(time.Minute)
			})

			It("stays attached", func() {
				previous := env.objects()
				Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskBeingDeleted))
				Expect(env.Delete(vm)).To(haveCode(call.CodeDiskBeingDeleted))
				_, err := env.Attach(vm, cid)
				Expect(err).To(haveCode(call.CodeDiskBeingDeleted))
				Expect(env.objects()).To(ConsistOf(previous))
				Expect(env.GetDisks(vm)).To(Equal([]string{cid}))
			})

			if properties == recreate {
				It("keeps the VM running when it would get another Pod", func() {
					other := env.createDisk(`{"volume_mode": "Block"}`)
					uid := env.pod(vm).UID
					Expect(env.Reboot(vm)).To(haveCode(call.CodeDiskBeingDeleted))
					_, err := env.Attach(vm, other)
					Expect(err).To(haveCode(call.CodeDiskBeingDeleted))
					Expect(env.pod(vm).UID).To(Equal(uid))
				})

				It("gets a valid owner record again", func() {
					env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
						pvc.DeletionTimestamp = nil
						delete(pvc.Annotations, manifest.AnnotationOwner)
					})
					Expect(env.RestoreAttachments(vm)).To(Succeed())
					owner, valid := env.pvc(cid).Owner()
					Expect(valid).To(BeTrue())
					Expect(owner.Pod).To(Equal(env.pod(manifest.AttachmentName(cid)).UID))
				})

				It("is not deleted with the VM after its attachment Pod was", func() {
					env.deletePod(manifest.AttachmentName(cid))
					Expect(env.Delete(vm)).To(haveCode(call.CodeDiskBeingDeleted))
					Expect(env.objects()).To(ContainElement("pods/" + vm))
				})
			}

			It("can be detached if its volume stays", func() {
				memoryapi.Update(env.api, "persistentvolumes", "", env.pvc(cid).Spec.VolumeName, &corev1.PersistentVolume{}, func(pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
				})
				Expect(env.Detach(vm, cid)).To(Succeed())
				Expect(env.Delete(vm)).To(Succeed())
			})
		})
	}
})

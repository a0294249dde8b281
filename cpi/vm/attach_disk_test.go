package vm

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("attach_disk", func() {
	var env *testEnv
	var vm, cid string
	BeforeEach(func() {
		env = newTestEnv()
		vm, cid = env.createVM(`{}`), env.createDisk(`{}`)
	})

	It("succeeds again for the same VM, with the same Pod", func() {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		uid := env.pod(manifest.AttachmentName(cid)).UID
		env.Session = env.newSession(time.Minute)
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pod(manifest.AttachmentName(cid)).UID).To(Equal(uid))
		Expect(env.pvc(cid).IsFormatted()).To(BeTrue())
	})

	It("records in the attachment Pod of a new disk that the VM has it: its node may be replaced by one with a blank volume", func() {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		first := env.pod(manifest.AttachmentName(cid))
		Expect(first.Annotations).To(HaveKeyWithValue(manifest.AnnotationFormatted, manifest.FormattedDevice))
		Expect(manifest.OwnContainer(first).Command).NotTo(ContainElement("--formatted"))
		Expect(first.Spec.Volumes).To(ContainElement(HaveField("DownwardAPI.Items", ConsistOf(HaveField("Path", "formatted")))))

		Expect(env.Detach(vm, cid)).To(Succeed())
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		later := env.pod(manifest.AttachmentName(cid))
		Expect(manifest.OwnContainer(later).Command).To(ContainElement("--formatted"))
		Expect(later.Spec.Volumes).NotTo(ContainElement(HaveField("DownwardAPI", Not(BeNil()))))
	})

	It("records that the VM has the disk, if an interrupted call did not", func() {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.updatePod(manifest.AttachmentName(cid), func(pod *corev1.Pod) { delete(pod.Annotations, manifest.AnnotationFormatted) })
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pod(manifest.AttachmentName(cid)).Annotations).To(HaveKey(manifest.AnnotationFormatted))
	})

	DescribeTable("runs an exclusivity check after one without a result, which may have removed the device node", func(check checkResult, replaced bool, count int) {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		name := manifest.AttachmentName(cid)
		env.check = checkResult{137, ""}
		env.updatePod(name, func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "exclusivity-check-1"}}}
		})
		first := env.pod(name).UID
		env.check = check
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		sameOrNot := Equal(first)
		if replaced {
			sameOrNot = Not(sameOrNot)
		}
		Expect(env.pod(name).UID).To(sameOrNot)
		Expect(env.pod(name).Spec.EphemeralContainers).To(HaveLen(count))
	},
		Entry("and creates the Pod again if it passes", checkResult{}, true, 0),
		Entry("and keeps the Pod if the disk is in use", checkResult{exitCode: api.ExitFailed}, false, 2),
		Entry("and keeps the Pod if it has no result either", checkResult{exitCode: 137}, false, 2),
	)

	DescribeTable("creates a filesystem on a blank disk", func(vmEnv, diskProperties, filesystem string) {
		request := request("fs", `{}`)
		request.Env = []byte(vmEnv)
		vm, err := env.Create(request)
		Expect(err).NotTo(HaveOccurred())
		cid = env.createDisk(diskProperties)
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(manifest.OwnContainer(env.pod(manifest.AttachmentName(cid))).Command, " ")).To(HaveSuffix(" --filesystem " + filesystem))
	},
		Entry("of the agent's default type", `{}`, `{}`, "ext4"),
		Entry("of the type in the VM's env", `{"persistent_disk_fs": "xfs"}`, `{}`, "xfs"),
		Entry("of the type in the disk's cloud properties", `{"persistent_disk_fs": "xfs"}`, `{"filesystem": "ext4"}`, "ext4"),
	)

	It("fails for another VM", func() {
		other, err := env.Create(request("two", `{}`))
		Expect(err).NotTo(HaveOccurred())
		_, err = env.Attach(other, cid)
		Expect(err).NotTo(HaveOccurred())
		_, err = env.Attach(vm, cid)
		Expect(err).To(And(haveCode(call.CodeDiskInUse), MatchError(ContainSubstring("VM "+other+"; detach it first"))))
		Expect(env.GetDisks(vm)).To(BeEmpty())
	})

	It("names the instance of another VM that has the disk, and how to delete a VM that the director does not know", func() {
		other, err := env.Create(request("two", `{}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(env.SetMetadata(other, map[string]any{"deployment": "cf", "job": "web", "index": 0})).To(Succeed())
		_, err = env.Attach(other, cid)
		Expect(err).NotTo(HaveOccurred())
		_, err = env.Attach(vm, cid)
		Expect(err).To(MatchError(And(ContainSubstring("VM "+other+" (web/0 of deployment cf)"),
			ContainSubstring("if `bosh vms` does not show that VM, delete it with `bosh -d cf delete-vm "+other+"`"))))
	})

	It("deletes an attachment Pod that does not start in time, and frees the disk", func() {
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool {
			return obj.GetLabels()[manifest.LabelRole] != manifest.RoleAttachment && simulate(obj)
		}
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			_, err := env.Attach(vm, cid)
			Expect(err).To(haveCode(call.CodeDiskAttachTimeout))
		})
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(BeZero())
	})

	DescribeTable("keeps a disk that the VM already had if the container of the attachment Pod was killed and fails", func(properties string) {
		r := request("two", properties)
		vm, err := env.Create(r)
		Expect(err).NotTo(HaveOccurred())
		cid := env.createDisk(`{"volume_mode": "Block"}`)
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.api.Simulate = nil // the container does not restart
		env.updatePod(manifest.AttachmentName(cid), func(pod *corev1.Pod) {
			pod.Status.Conditions = nil
			pod.Status.ContainerStatuses[0].RestartCount = 3
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137}
		})
		env.Session = env.newSession(time.Minute)
		_, err = env.Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskAttachFailed))
		Expect(env.objects()).To(ContainElement(attachmentOf(cid)))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner.VM).To(Equal(vm))
	},
		Entry("hot-plug", `{}`),
		Entry("recreate", recreate),
	)

	It("fails if a concurrent call attached the disk to the same VM with another Pod", func() {
		attached := false
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, cid) && !attached {
				attached = true
				env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Labels[manifest.LabelVM], pvc.Annotations[manifest.AnnotationOwner] = vm, "uid-of-other"
				})
			}
			return false
		}
		_, err := env.Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskBusy))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(Equal(manifest.DiskOwner{VM: vm, Pod: "uid-of-other"}))
	})

	It("fails if a concurrent call detached the disk, after another client deleted the attachment Pod", func() {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		env.deletePod(manifest.AttachmentName(cid))
		detached := false
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, cid) && !detached {
				detached = true
				env.updatePVC(cid, func(pvc *corev1.PersistentVolumeClaim) {
					delete(pvc.Labels, manifest.LabelVM)
					delete(pvc.Annotations, manifest.AnnotationOwner)
				})
			}
			return false
		}
		_, err = env.Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskBusy))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(BeZero())
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
	})

	It("replaces an attachment Pod that was evicted", func() {
		_, err := env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		evicted := env.evictAttachment(cid)
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pod(manifest.AttachmentName(cid)).UID).NotTo(Equal(evicted))
	})

	It("replaces an evicted attachment Pod of another VM that no longer has the disk", func() {
		other, err := env.Create(request("two", `{}`))
		Expect(err).NotTo(HaveOccurred())
		_, err = env.Attach(other, cid)
		Expect(err).NotTo(HaveOccurred())
		env.evictAttachment(cid)
		owner, _ := env.pvc(cid).Owner()
		_, err = env.diskSession().Release(cid, owner) // by a detach_disk that is killed before it deletes the Pod
		Expect(err).NotTo(HaveOccurred())
		_, err = env.Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.AttachmentPod{Pod: env.pod(manifest.AttachmentName(cid))}.VM()).To(Equal(vm))
	})

	Describe("with attachment Pods that the kubelet rejects", func() {
		rejected := 0
		rejectUntil := func(times int) {
			rejected = 0
			simulate := env.api.Simulate
			env.api.Simulate = func(obj *object) bool {
				changed := simulate(obj)
				if changed && rejected < times && obj.GetKind() == "Pod" && obj.GetLabels()[manifest.LabelRole] == manifest.RoleAttachment {
					rejected++
					obj.Object["status"] = map[string]any{"phase": "Failed", "reason": "OutOfpods", "message": "Pod was rejected: Node didn't have enough resource: pods"}
				}
				return changed
			}
		}

		It("creates the Pod once more", func() {
			rejectUntil(1)
			_, err := env.Attach(vm, cid)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.GetDisks(vm)).To(ConsistOf(cid))
		})

		It("fails after the second one with the reason, and frees the disk", func() {
			rejectUntil(3)
			_, err := env.Attach(vm, cid)
			Expect(err).To(And(haveCode(call.CodeDiskAttachFailed), MatchError(ContainSubstring("Node didn't have enough resource: pods"))))
			Expect(rejected).To(Equal(2))
			Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
			owner, _ := env.pvc(cid).Owner()
			Expect(owner).To(BeZero())
		})

		It("fails, but does not release a disk that the VM already had", func() {
			_, err := env.Attach(vm, cid)
			Expect(err).NotTo(HaveOccurred())
			env.evictAttachment(cid)
			rejectUntil(3)
			_, err = env.Attach(vm, cid)
			Expect(err).To(haveCode(call.CodeDiskAttachFailed))
			owner, _ := env.pvc(cid).Owner()
			Expect(owner.VM).To(Equal(vm))
		})
	})

	DescribeTable("changes nothing if", func(code call.Code, prepare func()) {
		prepare()
		_, err := env.Attach(vm, cid)
		Expect(err).To(haveCode(code))
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
	},
		Entry("the VM does not exist", call.CodeVMNotFound, func() { vm = "agent-none" }),
		Entry("the disk does not exist", call.CodeDiskNotFound, func() { cid = "disk-none" }),
		Entry("the VM ended", call.CodeVMNotRunning, func() {
			env.updatePod(vm, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		}),
		Entry("the VM is being deleted", call.CodeVMNotFound, func() {
			env.updatePod(vm, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/wait"} })
			env.deletePod(vm)
		}),
	)

	DescribeTable("of a VM with disk_strategy: recreate records whether the disk is a directory", func(properties, formatted string) {
		recreated, err := env.Create(request("two", recreate))
		Expect(err).NotTo(HaveOccurred())
		cid := env.createDisk(properties)
		_, err = env.Attach(recreated, cid)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pvc(cid).Annotations).To(HaveKeyWithValue(manifest.AnnotationFormatted, formatted))
	},
		Entry("a Filesystem volume, whatever its other properties", `{"filesystem": "xfs", "preallocate": true}`, manifest.FormattedDirectory),
		Entry("a Block volume", `{"volume_mode": "Block"}`, manifest.FormattedDevice),
	)

	DescribeTable("rejects a disk that the VM cannot have", func(vmProperties string, prepare func(recreated string)) {
		recreated, err := env.Create(request("two", recreate))
		Expect(err).NotTo(HaveOccurred())
		prepare(recreated)
		if vm = recreated; vmProperties != recreate {
			vm, err = env.Create(request("three", vmProperties))
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = env.Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskAttachUnsupported))
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(cid)))
	},
		Entry("a PVC for one Pod, with disk_strategy: recreate", recreate, func(string) {
			cid = env.createDisk(`{"volume_mode": "Block", "access_modes": ["ReadWriteOncePod"]}`)
		}),
		Entry("an image file, with disk_strategy: recreate", recreate, func(string) {
			_, err := env.Attach(vm, cid)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Detach(vm, cid)).To(Succeed())
		}),
		Entry("a second disk next to a directory, because the agent cannot migrate its data", recreate, func(recreated string) {
			_, err := env.Attach(recreated, env.createDisk(`{}`))
			Expect(err).NotTo(HaveOccurred())
			cid = env.createDisk(`{"volume_mode": "Block"}`)
		}),
		Entry("a second disk that would be a directory", recreate, func(recreated string) {
			_, err := env.Attach(recreated, env.createDisk(`{"volume_mode": "Block"}`))
			Expect(err).NotTo(HaveOccurred())
		}),
		Entry("a directory, without disk_strategy: recreate", `{}`, func(recreated string) {
			_, err := env.Attach(recreated, cid)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Detach(recreated, cid)).To(Succeed())
		}),
		Entry("a device, which an unprivileged VM cannot open", `{"security": {"privileged": false}}`, func(string) {}),
		Entry("a device, which a VM in a user namespace cannot mount", `{"security": {"host_users": false}}`, func(string) {}),
	)
})

var _ = Describe("A failed attach_disk of a disk that the VM has, after another client deleted the attachment Pod,", func() {
	for name, properties := range map[string]string{"of a VM with hot-plugged disks": `{}`, "of a VM with disk_strategy: recreate": recreate} {
		Describe(name, func() {
			var env *testEnv
			var vm, cid string
			BeforeEach(func() {
				env = newTestEnv()
				vm, cid = env.createVM(properties), env.createDisk(`{"volume_mode": "Block"}`)
				_, err := env.Attach(vm, cid)
				Expect(err).NotTo(HaveOccurred())
				env.deletePod(manifest.AttachmentName(cid))
				simulate := env.api.Simulate
				env.api.Simulate = func(obj *object) bool {
					return obj.GetLabels()[manifest.LabelRole] != manifest.RoleAttachment && simulate(obj)
				}
			})

			It("does not release the disk, which the VM may still use", func() {
				memoryapi.InVirtualTime(suite, func() {
					env.Session = env.newSession(time.Hour)
					_, err := env.Attach(vm, cid)
					Expect(err).To(HaveOccurred())
				})
				owner, _ := env.pvc(cid).Owner()
				Expect(owner.VM).To(Equal(vm))
			})

			It("does not release the disk if it adopted the Pod of another call", func() {
				memoryapi.InVirtualTime(suite, func() {
					first, second := env.newSession(time.Hour), env.newSession(2*time.Hour)
					failed := make(chan error)
					go func() {
						_, err := first.Attach(vm, cid)
						failed <- err
					}()
					Eventually(env.objects).Should(ContainElement(attachmentOf(cid)))
					go func() {
						_, err := second.Attach(vm, cid)
						failed <- err
					}()
					Expect(<-failed).To(HaveOccurred())
					Expect(<-failed).To(HaveOccurred())
				})
				owner, _ := env.pvc(cid).Owner()
				Expect(owner.VM).To(Equal(vm))
			})
		})
	}
})

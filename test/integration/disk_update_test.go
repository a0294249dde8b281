package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

const (
	copyLabel      = "bosh.cloudfoundry.org/copy"
	sizeAnnotation = "bosh.cloudfoundry.org/size-mib"
	callAnnotation = "bosh.cloudfoundry.org/call-id"
)

// createUsedDisk creates a disk, and attaches and detaches it once, so that it has a volume. It returns the CID.
func (env testEnv) createUsedDisk(ctx context.Context, vm string, properties map[string]any) string {
	GinkgoHelper()
	merged := maps.Clone(env.diskProperties)
	maps.Copy(merged, properties)
	disk := env.mustCall(ctx, "create_disk", 64, merged, nil).Text()
	env.mustCall(ctx, "attach_disk", vm, disk)
	env.detachAndWait(ctx, vm, disk)
	env.waitBound(ctx, disk)
	return disk
}

// detachAndWait detaches the disk, and waits until its attachment Pod is gone. detach_disk does not wait for that.
func (env testEnv) detachAndWait(ctx context.Context, vm, disk string) {
	GinkgoHelper()
	env.mustCall(ctx, "detach_disk", vm, disk)
	Eventually(env.listObjects).WithContext(ctx).WithPolling(20 * time.Millisecond).ShouldNot(ContainElement("Pod/" + disk + "-attachment"))
}

// waitBound waits until the disk has a volume. A simulated Pod can run before its PVC is bound.
func (env testEnv) waitBound(ctx context.Context, disk string) {
	GinkgoHelper()
	Eventually(func() corev1.PersistentVolumeClaimPhase { return env.getPVC(ctx, disk).Status.Phase }).WithContext(ctx).
		WithPolling(20 * time.Millisecond).Should(Equal(corev1.ClaimBound))
}

// getPVC returns the PVC of the disk.
func (env testEnv) getPVC(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	found, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, disk, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// getPVCWithoutStatus returns the parts of the disk's PVC that calls change. Kubernetes changes the status at any time, since 1.37 for example
// the condition Unused.
func (env testEnv) getPVCWithoutStatus(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	pvc := env.getPVC(ctx, disk)
	pvc.Status, pvc.ResourceVersion, pvc.ManagedFields = corev1.PersistentVolumeClaimStatus{}, "", nil
	return pvc
}

// listDisks returns the names of all PVCs in the namespace.
func (env testEnv) listDisks(ctx context.Context) []string {
	GinkgoHelper()
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, pvc := range pvcs.Items {
		names = append(names, pvc.Name)
	}
	return names
}

// attachAndReadEnv attaches and detaches the disk, and returns the environment variables of its attachment Pod.
func (env testEnv) attachAndReadEnv(ctx context.Context, vm, disk string) (variables []string) {
	GinkgoHelper()
	env.mustCall(ctx, "attach_disk", vm, disk)
	pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	env.mustCall(ctx, "detach_disk", vm, disk)
	for _, variable := range pod.Spec.Containers[0].Env {
		variables = append(variables, variable.Name+"="+variable.Value)
	}
	return variables
}

// setCopyExitCode makes the running copy Pod of the disk exit with this code.
func (env testEnv) setCopyExitCode(ctx context.Context, disk, exitCode string) {
	GinkgoHelper()
	Eventually(env.annotatePod).WithContext(ctx).WithArguments(disk+"-attachment", "test/exit", &exitCode).Should(Succeed())
}

// waitCopyRunning waits until the copy Pod of the disk runs.
func (env testEnv) waitCopyRunning(ctx context.Context, disk string) {
	GinkgoHelper()
	Eventually(func() (corev1.PodPhase, error) {
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		if err == nil && pod.Labels["bosh.cloudfoundry.org/role"] != "copy" {
			err = errors.New("the Pod is not a copy Pod")
		}
		return pod.Status.Phase, err
	}).WithContext(ctx).Should(Equal(corev1.PodRunning))
}

var (
	toBlock = map[string]any{"volume_mode": "Block"}
	// toXFS requires a copy Pod. The simulated nodes run it until setCopyExitCode is called.
	toXFS = map[string]any{"filesystem": "xfs"}
)

var _ = Describe("update_disk", func() {
	var (
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) { env, vm = newTestEnvWithVM(ctx) })

	// createInterruptedCopy returns a disk with a running copy Pod of a killed call.
	createInterruptedCopy := func(ctx context.Context) string {
		GinkgoHelper()
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		callCtx, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() {
			_, err := env.Call(callCtx, "update_disk", disk, 64, toXFS)
			ended <- err
		}()
		env.waitCopyRunning(ctx, disk)
		cancel()
		Expect(<-ended).To(HaveOccurred())
		return disk
	}

	Describe("in place", func() {
		It("expands a disk, sets labels and annotations, and changes nothing if it is retried", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			properties := map[string]any{"storage_class": "growing", "labels": map[string]any{"team": "a"}, "annotations": map[string]any{"note": "b c"}}
			Expect(env.mustCall(ctx, "update_disk", disk, 128, properties).Text()).To(Equal(disk))
			grown := env.getPVC(ctx, disk)
			Expect(grown.Annotations).To(And(HaveKeyWithValue(sizeAnnotation, "128"), HaveKeyWithValue("note", "b c")))
			Expect(grown.Labels).To(HaveKeyWithValue("team", "a"))
			Expect(grown.Status.Capacity.Storage().Value()).To(BeNumerically(">=", 128<<20))
			previous := env.getPVCWithoutStatus(ctx, disk)
			Expect(env.mustCall(ctx, "update_disk", disk, 128, properties).Text()).To(Equal(disk))
			Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
		})

		It("keeps the labels if only annotations are requested", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{"labels": map[string]any{"team": "a"}})
			previous := env.getPVC(ctx, disk).Labels
			Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{"annotations": map[string]any{"note": "b"}}).Text()).To(Equal(disk))
			Expect(env.getPVC(ctx, disk).Labels).To(Equal(previous))
			Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
		})

		It("preallocates a disk from its next attachment on, until preallocate is omitted", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{"preallocate": true}).Text()).To(Equal(disk))
			Expect(env.attachAndReadEnv(ctx, vm, disk)).To(ContainElement("PREALLOCATE=true"))
			Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
			Expect(env.attachAndReadEnv(ctx, vm, disk)).NotTo(ContainElement("PREALLOCATE=true"))
		})

		It("keeps the StorageClass if none is requested", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			Expect(env.mustCall(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
		})
	})

	Describe("that requires a copy", func() {
		for difference, change := range map[string]struct {
			size       int
			properties map[string]any
		}{
			"another StorageClass":            {64, map[string]any{"storage_class": "growing"}},
			"another volume mode":             {64, toBlock},
			"other access modes":              {64, map[string]any{"access_modes": []string{"ReadWriteMany"}}},
			"a larger size without expansion": {128, map[string]any{}},
			"a smaller size":                  {32, map[string]any{}},
		} {
			It("changes a disk to "+difference, func(ctx context.Context) {
				disk := env.createUsedDisk(ctx, vm, map[string]any{"labels": map[string]any{"team": "a"}})
				env.mustCall(ctx, "set_disk_metadata", disk, map[string]any{"job": "db", "owner": "a b"})
				successor := env.mustCall(ctx, "update_disk", disk, change.size, change.properties).Text()
				Expect(successor).NotTo(Equal(disk))
				pvc := env.getPVC(ctx, successor)
				Expect(pvc.Annotations).To(And(HaveKeyWithValue(sizeAnnotation, fmt.Sprint(change.size)), HaveKeyWithValue("bosh.cloudfoundry.org/owner", "a b")))
				Expect(pvc.Labels).To(And(HaveKeyWithValue("bosh.cloudfoundry.org/job", "db"), Not(HaveKey("team"))))

				env.mustCall(ctx, "attach_disk", vm, successor)
				Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(successor))
				Expect(env.getPVC(ctx, successor).Labels).NotTo(HaveKey(copyLabel))
				Expect(env.mustCall(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + successor + `"]`))
				Expect(env.mustCall(ctx, "update_disk", disk, change.size, change.properties).Text()).To(Equal(successor), "a retried call, as after a lost response")
			})
		}

		It("keeps the old disk until the director uses the new one", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			successor := env.mustCall(ctx, "update_disk", disk, 64, toBlock).Text()
			Expect(env.mustCall(ctx, "update_disk", disk, 64, toBlock).Text()).To(Equal(successor))
			Expect(env.listDisks(ctx)).To(ConsistOf(disk, successor))

			By("attaching the old disk, which makes its copy obsolete")
			env.mustCall(ctx, "attach_disk", vm, disk)
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
			env.mustCall(ctx, "detach_disk", vm, disk)
			Expect(env.mustCall(ctx, "update_disk", disk, 64, toBlock).Text()).To(Equal(successor))

			env.mustCall(ctx, "delete_disk", successor)
			Eventually(env.listDisks).WithContext(ctx).Should(BeEmpty())
			Expect(env.mustFail(ctx, "update_disk", disk, 64, toBlock).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		})

		It("can be called again for the successor", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			second := env.mustCall(ctx, "update_disk", disk, 64, toBlock).Text()
			third := env.mustCall(ctx, "update_disk", second, 64, map[string]any{}).Text()
			env.mustCall(ctx, "attach_disk", vm, third)
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(third))
		})

		It("replaces the copy if other properties are requested later", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			first := env.mustCall(ctx, "update_disk", disk, 64, toBlock).Text()
			second := env.mustCall(ctx, "update_disk", disk, 96, toBlock).Text()
			Expect(second).NotTo(Equal(first))
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk, second))
		})

		It("creates no copy Pod for a disk without a volume", func(ctx context.Context) {
			disk := env.createDisk(ctx)
			env.mustCall(ctx, "delete_vm", vm)
			successor := env.mustCall(ctx, "update_disk", disk, 128, map[string]any{}).Text()
			other := env.createVM(ctx, "two")
			env.mustCall(ctx, "attach_disk", other, successor)
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(successor))
		})

		It("copies a disk directly after detach_disk, when the kubelet has removed its attachment Pod", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			env.mustCall(ctx, "attach_disk", vm, disk)
			release := env.blockDeletion(ctx, podResource, disk+"-attachment")
			env.mustCall(ctx, "detach_disk", vm, disk)
			update := startCall(ctx, env.Director, "update_disk", disk, 64, toBlock)
			release()
			Expect((<-update).Error).To(BeNil())
		})

		It("runs the copy Pod on any node that responds, if the disk belongs to no VM", func(ctx context.Context) {
			lost := "lost-" + env.namespace
			createNode(ctx, lost)
			env.markNodeUnreachable(ctx, lost)
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			env.mustCall(ctx, "set_disk_metadata", disk, map[string]any{"instance_id": "another"})
			update := startCall(ctx, env.Director, "update_disk", disk, 64, toXFS)
			env.waitCopyRunning(ctx, disk)
			pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms).To(HaveEach(
				HaveField("MatchFields", ContainElement(And(
					HaveField("Operator", corev1.NodeSelectorOpNotIn), HaveField("Values", ConsistOf(lost)))))))
			env.setCopyExitCode(ctx, disk, "0")
			Expect((<-update).Error).To(BeNil())
		})

		It("runs the copy Pod on the node of the VM that the disk belongs to, with the image of that VM", func(ctx context.Context) {
			others := []string{env.createVM(ctx, "two"), env.createVM(ctx, "three")}
			env.mustCall(ctx, "set_vm_metadata", others[1], map[string]any{"id": "instance-3"})
			disk := env.createUsedDisk(ctx, others[1], map[string]any{})
			env.mustCall(ctx, "set_disk_metadata", disk, map[string]any{"instance_id": "instance-3"})
			go func() {
				defer GinkgoRecover()
				env.setCopyExitCode(ctx, disk, "0")
			}()
			proxy.Reset(nil)
			env.mustCall(ctx, "update_disk", disk, 64, toXFS)
			vmPod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, others[1], metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			successor := env.listDisks(ctx)
			for _, name := range successor {
				Expect(env.getPVC(ctx, name).Annotations).To(HaveKeyWithValue("volume.kubernetes.io/selected-node", vmPod.Spec.NodeName))
			}
		})
	})

	Describe("that fails", func() {
		It("because the disk is attached changes nothing", func(ctx context.Context) {
			disk := env.createDisk(ctx)
			env.mustCall(ctx, "attach_disk", vm, disk)
			previous := env.getPVCWithoutStatus(ctx, disk)
			for _, properties := range []map[string]any{{}, toBlock, {"labels": map[string]any{"team": "a"}}} {
				Expect(env.mustFail(ctx, "update_disk", disk, 128, properties).Message).To(ContainSubstring("attached to VM " + vm))
			}
			Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
			Expect(env.listDisks(ctx)).To(ConsistOf(disk))
		})

		It("because the VM uses the disk keeps the disk, even if another client deleted its attachment Pod", func(ctx context.Context) {
			disk := env.createDisk(ctx)
			env.mustCall(ctx, "attach_disk", vm, disk)
			release := env.blockDeletion(ctx, podResource, disk+"-attachment")
			Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
			Expect(env.mustFail(ctx, "update_disk", disk, 64, toBlock).Message).To(ContainSubstring("attached to VM " + vm))
			release()
			env.mustCall(ctx, "attach_disk", vm, disk)
			Expect(env.listDisks(ctx)).To(ConsistOf(disk))
		})

		It("because a StorageClass or the disk does not exist names it", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			previous := env.getPVCWithoutStatus(ctx, disk)
			failed := env.mustFail(ctx, "update_disk", disk, 64, map[string]any{"storage_class": "none"})
			Expect(failed.Type).To(Equal(cpiError))
			Expect(failed.Message).To(ContainSubstring("cloud_properties.storage_class: StorageClass none not found"))
			Expect(env.getPVCWithoutStatus(ctx, disk)).To(Equal(previous))
			Expect(env.mustFail(ctx, "update_disk", "disk-none", 64, map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		})

		It("because no VM runs lets the director copy the data", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			env.mustCall(ctx, "delete_vm", vm)
			Expect(env.mustFail(ctx, "update_disk", disk, 64, toBlock).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
		})

		for exitCode, kind := range map[string]string{"1": "Bosh::Clouds::CloudError", "28": "Bosh::Clouds::NoDiskSpace"} {
			It("because the copy Pod exits with "+exitCode+" keeps the disk, which can be attached", func(ctx context.Context) {
				disk := env.createUsedDisk(ctx, vm, map[string]any{})
				go func() {
					defer GinkgoRecover()
					env.setCopyExitCode(ctx, disk, exitCode)
				}()
				failed := env.mustFail(ctx, "update_disk", disk, 64, toXFS)
				Expect(failed.Type).To(Equal(kind))
				Expect(failed.Message).To(ContainSubstring("output of the copy Pod"))
				Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
				env.mustCall(ctx, "attach_disk", vm, disk)
			})
		}

		It("because another client replaced the copy Pod deletes the incomplete copy", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			failed := startCall(ctx, env.Director, "update_disk", disk, 64, toXFS)
			env.waitCopyRunning(ctx, disk)
			_, allow := holdRequests(func(_ int, r *http.Request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+disk+"-attachment")
			})
			env.forceDeletePod(ctx, disk+"-attachment")
			env.createUnmanagedPod(ctx, disk+"-attachment")
			allow()
			Expect((<-failed).Error).NotTo(BeNil())
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
		})

		It("because of a timeout deletes the copy Pod and keeps the disk", func(ctx context.Context) {
			disk := env.createUsedDisk(ctx, vm, map[string]any{})
			shortTimeout := env
			shortTimeout.Director = env.directorWithTimeouts(map[string]any{"update_disk": "6s"})
			Expect(shortTimeout.mustFail(ctx, "update_disk", disk, 64, toXFS).Message).To(ContainSubstring("timeouts.update_disk"))
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
			env.mustCall(ctx, "attach_disk", vm, disk)
		})
	})

	Describe("while the copy Pod of an interrupted call runs", func() {
		It("completes the copy if it is retried, and other calls reject the disk", func(ctx context.Context) {
			disk := createInterruptedCopy(ctx)
			Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(ContainSubstring("is being copied to disk"))
			Expect(env.mustFail(ctx, "delete_disk", disk).Message).To(ContainSubstring("is being copied to disk"))
			Expect(env.mustFail(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring("is being copied to disk"))
			Expect(env.mustFail(ctx, "update_disk", disk, 64, toBlock).Message).To(ContainSubstring("is being copied to disk"))
			Expect(env.mustFail(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
			for _, other := range env.listDisks(ctx) {
				if other != disk {
					Expect(env.mustFail(ctx, "attach_disk", vm, other).Message).To(ContainSubstring("is an incomplete copy of disk"))
				}
			}
			env.setCopyExitCode(ctx, disk, "0")
			env.mustCall(ctx, "attach_disk", vm, env.mustCall(ctx, "update_disk", disk, 64, toXFS).Text())
			Eventually(env.listDisks).WithContext(ctx).Should(HaveLen(1))
		})

		It("no longer blocks attach_disk after the copy Pod failed", func(ctx context.Context) {
			disk := createInterruptedCopy(ctx)
			env.setCopyExitCode(ctx, disk, "1")
			Eventually(func() *director.Error {
				response, err := env.Call(ctx, "attach_disk", vm, disk)
				Expect(err).NotTo(HaveOccurred())
				return response.Error
			}).WithContext(ctx).Should(BeNil())
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
		})

		It("leaves orphaned objects, which -collect deletes, and keeps the disk", func(ctx context.Context) {
			env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
			disk := createInterruptedCopy(ctx)
			Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
				ContainSubstring("Pod "+env.namespace+"/"+disk+"-attachment"), And(ContainSubstring("PersistentVolumeClaim "), ContainSubstring("disk "+disk)), ContainSubstring("-confirm")))
			env.runCollect(ctx, director.UUID, "-confirm")
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
			env.mustCall(ctx, "attach_disk", vm, disk)
		})
	})

	It("leaves an incomplete copy that delete_disk deletes only after the deletion of the original", func(ctx context.Context) {
		disk := createInterruptedCopy(ctx)
		env.setCopyExitCode(ctx, disk, "1")
		successor := env.getPVC(ctx, disk).Annotations["bosh.cloudfoundry.org/copied-to"]
		Expect(env.mustFail(ctx, "delete_disk", successor).Message).To(HaveSuffix("[disk-copy-incomplete]"))
		Expect(cluster.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, disk, metav1.DeleteOptions{})).To(Succeed())
		env.mustCall(ctx, "delete_disk", successor)
		Eventually(env.listDisks).WithContext(ctx).Should(BeEmpty())
	})

	// In the following specs, each update copies the successor of the previous update, which accepts that successor.
	modes := []map[string]any{{}, toBlock}

	It("that is killed after any request, and retried, returns one successor", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		forEachRequest(15, func(n int) bool {
			interrupted := env.interruptCall(ctx, n, "update_disk", disk, 64, modes[n%2])
			successor := env.mustCall(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk, successor))
			disk = successor
			return interrupted
		})
	})

	It("that is killed after any request does not prevent an attach_disk", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		forEachRequest(10, func(n int) bool {
			interrupted := env.interruptCall(ctx, n, "update_disk", disk, 64, toBlock)
			Eventually(func() *director.Error {
				response, err := env.Call(ctx, "attach_disk", vm, disk)
				Expect(err).NotTo(HaveOccurred())
				return response.Error
			}).WithContext(ctx).Should(BeNil(), "the copy Pod exits by itself")
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk))
			env.mustCall(ctx, "detach_disk", vm, disk)
			return interrupted
		})
	})

	It("is completed by an attach_disk of the successor that is killed after any request, and retried", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		forEachRequest(6, func(n int) bool {
			successor := env.mustCall(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			interrupted := env.interruptCall(ctx, n, "attach_disk", vm, successor)
			env.mustCall(ctx, "attach_disk", vm, successor)
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(successor))
			env.mustCall(ctx, "detach_disk", vm, successor)
			disk = successor
			return interrupted
		})
	})

	It("creates one successor if the response to any request is lost", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{})
		for n, sent := 1, 1; n <= sent; n++ {
			proxy.Reset(apiproxy.ResetAfter(n))
			successor := env.mustCall(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			sent = len(proxy.Requests())
			proxy.Reset(nil)
			Eventually(env.listDisks).WithContext(ctx).Should(ConsistOf(disk, successor))
			disk = successor
		}
	})
})

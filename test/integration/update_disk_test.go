package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

const (
	copyLabel = "bosh.cloudfoundry.org/copy"
	sizeOf    = "bosh.cloudfoundry.org/size-mib"
)

// usedDisk is a disk that has been attached once, so that it has a volume.
func (w world) usedDisk(ctx context.Context, vm string, properties map[string]any) string {
	GinkgoHelper()
	all := maps.Clone(w.disk)
	maps.Copy(all, properties)
	disk := w.must(ctx, "create_disk", 64, all, nil).Text()
	w.must(ctx, "attach_disk", vm, disk)
	w.must(ctx, "detach_disk", vm, disk)
	return disk
}

func (w world) claim(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	found, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, disk, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// disks are the names of all claims.
func (w world) disks(ctx context.Context) []string {
	GinkgoHelper()
	claims, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, claim := range claims.Items {
		names = append(names, claim.Name)
	}
	return names
}

// environment attaches the disk, and detaches it again, and returns what its attachment was told.
func (w world) environment(ctx context.Context, vm, disk string) (told []string) {
	GinkgoHelper()
	w.must(ctx, "attach_disk", vm, disk)
	pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	w.must(ctx, "detach_disk", vm, disk)
	for _, each := range pod.Spec.Containers[0].Env {
		told = append(told, each.Name+"="+each.Value)
	}
	return told
}

// endCopy makes the copy of the disk, which runs, end with this status.
func (w world) endCopy(ctx context.Context, disk, status string) {
	GinkgoHelper()
	Eventually(w.annotate).WithContext(ctx).WithArguments(disk+"-attachment", "test/exit", &status).Should(Succeed())
}

// copyRuns waits until the copy of the disk runs.
func (w world) copyRuns(ctx context.Context, disk string) {
	GinkgoHelper()
	Eventually(func() (corev1.PodPhase, error) {
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		if err == nil && pod.Labels["bosh.cloudfoundry.org/role"] != "copy" {
			err = errors.New("it is no copy")
		}
		return pod.Status.Phase, err
	}).WithContext(ctx).Should(Equal(corev1.PodRunning))
}

var (
	toBlock = map[string]any{"volume_mode": "Block"}
	// The suite's nodes make such a copy run until it is told to end.
	toXFS = map[string]any{"filesystem": "xfs"}
)

var _ = Describe("update_disk", func() {
	var (
		w  world
		vm string
	)
	BeforeEach(func(ctx context.Context) { w, vm = newWorldWithVM(ctx) })

	// begun is a disk whose copy runs, after the call that began it was killed.
	begun := func(ctx context.Context) string {
		GinkgoHelper()
		disk := w.usedDisk(ctx, vm, map[string]any{})
		calling, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() {
			_, err := w.Call(calling, "update_disk", disk, 64, toXFS)
			ended <- err
		}()
		w.copyRuns(ctx, disk)
		cancel()
		Expect(<-ended).To(HaveOccurred())
		return disk
	}

	Describe("in place", func() {
		It("grows a disk and sets labels and annotations, and changes nothing when it is repeated", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			wanted := map[string]any{"storage_class": "growing", "labels": map[string]any{"team": "a"}, "annotations": map[string]any{"note": "b c"}}
			Expect(w.must(ctx, "update_disk", disk, 128, wanted).Text()).To(Equal(disk))
			grown := w.claim(ctx, disk)
			Expect(grown.Annotations).To(And(HaveKeyWithValue(sizeOf, "128"), HaveKeyWithValue("note", "b c")))
			Expect(grown.Labels).To(HaveKeyWithValue("team", "a"))
			Expect(grown.Status.Capacity.Storage().Value()).To(BeNumerically(">=", 128<<20))
			Expect(w.must(ctx, "update_disk", disk, 128, wanted).Text()).To(Equal(disk))
			Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(grown.ResourceVersion))
		})

		It("keeps the labels when annotations alone are asked for, and the disk with them", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{"labels": map[string]any{"team": "a"}})
			before := w.claim(ctx, disk).Labels
			Expect(w.must(ctx, "update_disk", disk, 64, map[string]any{"annotations": map[string]any{"note": "b"}}).Text()).To(Equal(disk))
			Expect(w.claim(ctx, disk).Labels).To(Equal(before))
			Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("true"))
		})

		It("has a disk's room reserved from its next attachment on, and no longer when that is left out", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			Expect(w.must(ctx, "update_disk", disk, 64, map[string]any{"reserve": true}).Text()).To(Equal(disk))
			Expect(w.environment(ctx, vm, disk)).To(ContainElement("RESERVE=true"))
			Expect(w.must(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
			Expect(w.environment(ctx, vm, disk)).NotTo(ContainElement("RESERVE=true"))
		})

		It("leaves a disk on its class when none is asked for", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{"storage_class": "growing"})
			Expect(w.must(ctx, "update_disk", disk, 64, map[string]any{}).Text()).To(Equal(disk))
		})
	})

	Describe("with a copy", func() {
		for what, change := range map[string]struct {
			size       int
			properties map[string]any
		}{
			"another class":                        {64, map[string]any{"storage_class": "growing"}},
			"another volume mode":                  {64, toBlock},
			"other access modes":                   {64, map[string]any{"access_modes": []string{"ReadWriteMany"}}},
			"a size that the class cannot grow to": {128, map[string]any{}},
			"a smaller size":                       {32, map[string]any{}},
		} {
			It("gives "+what, func(ctx context.Context) {
				disk := w.usedDisk(ctx, vm, map[string]any{"labels": map[string]any{"team": "a"}})
				w.must(ctx, "set_disk_metadata", disk, map[string]any{"job": "db", "owner": "a b"})
				successor := w.must(ctx, "update_disk", disk, change.size, change.properties).Text()
				Expect(successor).NotTo(Equal(disk))
				claim := w.claim(ctx, successor)
				Expect(claim.Annotations).To(And(HaveKeyWithValue(sizeOf, fmt.Sprint(change.size)), HaveKeyWithValue("bosh.cloudfoundry.org/owner", "a b")))
				Expect(claim.Labels).To(And(HaveKeyWithValue("bosh.cloudfoundry.org/job", "db"), Not(HaveKey("team"))))

				w.must(ctx, "attach_disk", vm, successor)
				Eventually(w.disks).WithContext(ctx).Should(ConsistOf(successor))
				Expect(w.claim(ctx, successor).Labels).NotTo(HaveKey(copyLabel))
				Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`["` + successor + `"]`))
				Expect(w.must(ctx, "update_disk", disk, change.size, change.properties).Text()).To(Equal(successor), "once more, with its answer lost")
			})
		}

		It("keeps the old disk until the director has named the new one", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			successor := w.must(ctx, "update_disk", disk, 64, toBlock).Text()
			Expect(w.must(ctx, "update_disk", disk, 64, toBlock).Text()).To(Equal(successor))
			Expect(w.disks(ctx)).To(ConsistOf(disk, successor))

			By("attaching the old one, whose copy is out of date from then on")
			w.must(ctx, "attach_disk", vm, disk)
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
			w.must(ctx, "detach_disk", vm, disk)
			Expect(w.must(ctx, "update_disk", disk, 64, toBlock).Text()).To(Equal(successor))

			w.must(ctx, "delete_disk", successor)
			Eventually(w.disks).WithContext(ctx).Should(BeEmpty())
			Expect(w.fails(ctx, "update_disk", disk, 64, toBlock).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		})

		It("follows the disk from one to the next", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			second := w.must(ctx, "update_disk", disk, 64, toBlock).Text()
			third := w.must(ctx, "update_disk", second, 64, map[string]any{}).Text()
			w.must(ctx, "attach_disk", vm, third)
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(third))
		})

		It("gives up a copy that something else was asked for after", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			first := w.must(ctx, "update_disk", disk, 64, toBlock).Text()
			second := w.must(ctx, "update_disk", disk, 96, toBlock).Text()
			Expect(second).NotTo(Equal(first))
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk, second))
		})

		It("needs no Pod for a disk that has no volume yet", func(ctx context.Context) {
			disk := w.createDisk(ctx)
			w.must(ctx, "delete_vm", vm)
			successor := w.must(ctx, "update_disk", disk, 128, map[string]any{}).Text()
			other := w.createVM(ctx, "two")
			w.must(ctx, "attach_disk", other, successor)
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(successor))
		})

		It("puts the copy where the disk's own VM is, and takes its image", func(ctx context.Context) {
			others := []string{w.createVM(ctx, "two"), w.createVM(ctx, "three")}
			w.must(ctx, "set_vm_metadata", others[1], map[string]any{"id": "instance-3"})
			disk := w.usedDisk(ctx, others[1], map[string]any{})
			w.must(ctx, "set_disk_metadata", disk, map[string]any{"instance_id": "instance-3"})
			go func() {
				defer GinkgoRecover()
				w.endCopy(ctx, disk, "0")
			}()
			proxy.Reset(nil)
			w.must(ctx, "update_disk", disk, 64, toXFS)
			machine, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, others[1], metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			successor := w.disks(ctx)
			for _, name := range successor {
				Expect(w.claim(ctx, name).Annotations).To(HaveKeyWithValue("volume.kubernetes.io/selected-node", machine.Spec.NodeName))
			}
		})
	})

	Describe("that cannot be done", func() {
		It("says so for an attached disk, and changes nothing", func(ctx context.Context) {
			disk := w.createDisk(ctx)
			w.must(ctx, "attach_disk", vm, disk)
			before := w.claim(ctx, disk).ResourceVersion
			for _, properties := range []map[string]any{{}, toBlock, {"labels": map[string]any{"team": "a"}}} {
				Expect(w.fails(ctx, "update_disk", disk, 128, properties).Message).To(ContainSubstring("attached to VM " + vm))
			}
			Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(before))
			Expect(w.disks(ctx)).To(ConsistOf(disk))
		})

		It("says so for a disk whose device is not free yet, whoever deleted its attachment", func(ctx context.Context) {
			disk := w.createDisk(ctx)
			w.must(ctx, "attach_disk", vm, disk)
			release := w.keep(ctx, pods, disk+"-attachment")
			Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
			Expect(w.fails(ctx, "update_disk", disk, 64, toBlock).Message).To(ContainSubstring("still being released in VM " + vm))
			release()
			w.must(ctx, "attach_disk", vm, disk)
			Expect(w.disks(ctx)).To(ConsistOf(disk))
		})

		It("names a class that does not exist, and a disk that is not there", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			before := w.claim(ctx, disk).ResourceVersion
			failed := w.fails(ctx, "update_disk", disk, 64, map[string]any{"storage_class": "none"})
			Expect(failed.Type).To(Equal(cpiError))
			Expect(failed.Message).To(ContainSubstring("cloud_properties.storage_class: the cluster has no StorageClass none"))
			Expect(w.claim(ctx, disk).ResourceVersion).To(Equal(before))
			Expect(w.fails(ctx, "update_disk", "disk-none", 64, map[string]any{}).Type).To(Equal("Bosh::Clouds::DiskNotFound"))
		})

		It("is left to the director's own copying when no VM runs", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			w.must(ctx, "delete_vm", vm)
			Expect(w.fails(ctx, "update_disk", disk, 64, toBlock).Type).To(Equal("Bosh::Clouds::NotSupported"))
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
		})

		for status, kind := range map[string]string{"1": "Bosh::Clouds::CloudError", "28": "Bosh::Clouds::NoDiskSpace"} {
			It("because the copy ends with status "+status+" leaves the disk as it was, free to attach", func(ctx context.Context) {
				disk := w.usedDisk(ctx, vm, map[string]any{})
				go func() {
					defer GinkgoRecover()
					w.endCopy(ctx, disk, status)
				}()
				failed := w.fails(ctx, "update_disk", disk, 64, toXFS)
				Expect(failed.Type).To(Equal(kind))
				Expect(failed.Message).To(ContainSubstring("said by the copy"))
				Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
				w.must(ctx, "attach_disk", vm, disk)
			})
		}

		It("in time ends the copy and leaves the disk as it was", func(ctx context.Context) {
			disk := w.usedDisk(ctx, vm, map[string]any{})
			short := w
			short.Director = w.withTimeouts(map[string]any{"update_disk": "6s"})
			Expect(short.fails(ctx, "update_disk", disk, 64, toXFS).Message).To(ContainSubstring("timeouts.update_disk"))
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
			w.must(ctx, "attach_disk", vm, disk)
		})
	})

	Describe("while a copy runs that a killed call has begun", func() {
		It("no one else gets the disk, and the same call ends the copy", func(ctx context.Context) {
			disk := begun(ctx)
			Expect(w.fails(ctx, "attach_disk", vm, disk).Message).To(ContainSubstring("is being copied to disk"))
			Expect(w.fails(ctx, "delete_disk", disk).Message).To(ContainSubstring("is being copied to disk"))
			Expect(w.fails(ctx, "resize_disk", disk, 128).Message).To(ContainSubstring("is being copied to disk"))
			Expect(w.fails(ctx, "update_disk", disk, 64, toBlock).Message).To(ContainSubstring("is being copied to disk"))
			Expect(w.fails(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
			for _, each := range w.disks(ctx) {
				if each != disk {
					Expect(w.fails(ctx, "attach_disk", vm, each).Message).To(ContainSubstring("is an incomplete copy of disk"))
				}
			}
			w.endCopy(ctx, disk, "0")
			w.must(ctx, "attach_disk", vm, w.must(ctx, "update_disk", disk, 64, toXFS).Text())
			Eventually(w.disks).WithContext(ctx).Should(HaveLen(1))
		})

		It("the disk is free once it has ended", func(ctx context.Context) {
			disk := begun(ctx)
			w.endCopy(ctx, disk, "1")
			Eventually(func() *director.Error {
				response, err := w.Call(ctx, "attach_disk", vm, disk)
				Expect(err).NotTo(HaveOccurred())
				return response.Error
			}).WithContext(ctx).Should(BeNil())
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
		})

		It("what it left is found and removed by -collect, and the disk stays", func(ctx context.Context) {
			w.must(ctx, "set_vm_metadata", vm, map[string]any{"job": "web"})
			disk := begun(ctx)
			Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
				ContainSubstring("Pod "+w.namespace+"/"+disk+"-attachment"), And(ContainSubstring("PersistentVolumeClaim "), ContainSubstring("disk "+disk)), ContainSubstring("-confirm")))
			w.collect(ctx, director.UUID, "-confirm")
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
			w.must(ctx, "attach_disk", vm, disk)
		})
	})

	// Each update is of the disk that the one before has made, which thereby takes over.
	modes := []map[string]any{{}, toBlock}

	It("killed after any request, ends with the same new disk when it is repeated", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		eachRequest(15, func(n int) bool {
			cut := w.killed(ctx, n, "update_disk", disk, 64, modes[n%2])
			successor := w.must(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk, successor))
			disk = successor
			return cut
		})
	})

	It("killed after any request, leaves the disk to be attached again", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		eachRequest(10, func(n int) bool {
			cut := w.killed(ctx, n, "update_disk", disk, 64, toBlock)
			Eventually(func() *director.Error {
				response, err := w.Call(ctx, "attach_disk", vm, disk)
				Expect(err).NotTo(HaveOccurred())
				return response.Error
			}).WithContext(ctx).Should(BeNil(), "the copy ends by itself")
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk))
			w.must(ctx, "detach_disk", vm, disk)
			return cut
		})
	})

	It("is finished by an attach_disk of the new disk that is killed after any request, and repeated", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		eachRequest(6, func(n int) bool {
			successor := w.must(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			cut := w.killed(ctx, n, "attach_disk", vm, successor)
			w.must(ctx, "attach_disk", vm, successor)
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(successor))
			w.must(ctx, "detach_disk", vm, successor)
			disk = successor
			return cut
		})
	})

	It("makes one new disk when an answer to any request is lost on the way back", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{})
		for n, sent := 1, 1; n <= sent; n++ {
			proxy.Reset(apiproxy.ResetAfter(n))
			successor := w.must(ctx, "update_disk", disk, 64, modes[n%2]).Text()
			sent = len(proxy.Requests())
			proxy.Reset(nil)
			Eventually(w.disks).WithContext(ctx).Should(ConsistOf(disk, successor))
			disk = successor
		}
	})
})

package manifest_test

import (
	"encoding/json"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"bosh-kubernetes-cpi/kube/manifest"
)

// patched is the object as the API server makes it of the patch.
func patched[T any](from *T, patch []byte, err error) *T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	before, err := json.Marshal(from)
	Expect(err).NotTo(HaveOccurred())
	var made T
	after, err := strategicpatch.StrategicMergePatch(before, patch, made)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(after, &made)).To(Succeed())
	return &made
}

var _ = Describe("The director's metadata", func() {
	described := func(metadata map[string]any) manifest.Metadata {
		GinkgoHelper()
		made, err := manifest.Describe(metadata)
		Expect(err).NotTo(HaveOccurred())
		return made
	}

	It("stands in labels where they can hold it, in annotations always, and whole in one", func() {
		made := described(map[string]any{"deployment": "cf", "name": "web/0 (bootstrap)", "index": 3})
		Expect(made.Annotations).To(Equal(map[string]string{
			manifest.Prefix + "deployment": "cf", manifest.Prefix + "name": "web/0 (bootstrap)", manifest.Prefix + "index": "3",
			manifest.AnnotationMetadata: `{"deployment":"cf","index":3,"name":"web/0 (bootstrap)"}`,
		}))
		Expect(made.Labels).To(Equal(map[string]*string{
			manifest.Prefix + "deployment": new("cf"), manifest.Prefix + "name": nil, manifest.Prefix + "index": new("3"),
		}))
	})

	It("never takes the place of a key that the CPI works with", func() {
		made := described(map[string]any{"vm": "mine", "size-mib": "7"})
		Expect(made.Labels).To(Equal(map[string]*string{manifest.Prefix + "tag-vm": new("mine"), manifest.Prefix + "tag-size-mib": new("7")}))
	})

	It("removes a label whose value no label can hold any more", func() {
		pod := machine().Pod()
		pod.Labels[manifest.Prefix+"name"] = "web"
		patch, err := described(map[string]any{"name": "web/0"}).Patch()
		after := patched(pod, patch, err)
		Expect(after.Labels).NotTo(HaveKey(manifest.Prefix + "name"))
		Expect(after.Labels).To(HaveKeyWithValue(manifest.LabelVM, pod.Name))
	})
})

var _ = Describe("A disk's claim", func() {
	disk := manifest.Disk{Name: "disk-1", SizeMiB: 1024, Mode: corev1.PersistentVolumeBlock}

	It("gets one label or annotation, and loses it again, beside those that it has", func() {
		claim := disk.Claim()
		patch, err := manifest.SetLabel("team", new("a"))
		with := patched(claim, patch, err)
		Expect(with.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(with.Labels).To(HaveKeyWithValue(manifest.LabelRole, manifest.RoleDisk))
		patch, err = manifest.SetLabel("team", nil)
		Expect(patched(with, patch, err).Labels).To(Equal(claim.Labels))
		patch, err = manifest.SetAnnotation("note", new("b"))
		with = patched(claim, patch, err)
		Expect(with.Annotations).To(HaveKeyWithValue("note", "b"))
		patch, err = manifest.SetAnnotation("note", nil)
		Expect(patched(with, patch, err).Annotations).To(Equal(claim.Annotations))
	})

	It("keeps its labels when only annotations are asked for, and the other way round", func() {
		claim := disk.Claim()
		wanted := disk
		wanted.Annotations = map[string]string{"note": "b"}
		patch, err := wanted.Relabel(claim)
		after := patched(claim, patch, err)
		Expect(after.Labels).To(Equal(claim.Labels))
		Expect(after.Annotations).To(HaveKeyWithValue("note", "b"))
		wanted = disk
		wanted.Labels = map[string]string{"team": "a"}
		patch, err = wanted.Relabel(claim)
		after = patched(claim, patch, err)
		Expect(after.Annotations).To(Equal(claim.Annotations))
		Expect(after.Labels).To(HaveKeyWithValue("team", "a"))
	})

	It("has its room reserved, and no longer", func() {
		reserved := disk
		reserved.Reserve = true
		patch, err := reserved.Relabel(disk.Claim())
		after := patched(disk.Claim(), patch, err)
		Expect(manifest.IsReserved(after)).To(BeTrue())
		Expect(reserved.Relabel(after)).To(BeNil())
		patch, err = disk.Relabel(after)
		after = patched(after, patch, err)
		Expect(manifest.IsReserved(after)).To(BeFalse())
		Expect(disk.Relabel(after)).To(BeNil())
	})

	It("is left alone when it has what is asked for", func() {
		wanted := disk
		wanted.Labels = map[string]string{"team": "a"}
		Expect(wanted.Relabel(wanted.Claim())).To(BeNil())
	})

	It("asks for more room", func() {
		patch, err := manifest.RequestStorage(disk.Claim(), resource.MustParse("3Gi"))
		after := patched(disk.Claim(), patch, err)
		Expect(after.Spec.Resources.Requests.Storage().String()).To(Equal("3Gi"))
		Expect(after.Spec.VolumeMode).To(HaveValue(Equal(corev1.PersistentVolumeBlock)))
	})
})

var _ = Describe("A machine's Pod", func() {
	It("gets annotations under the condition that it is still this one", func() {
		pod := running(machine())
		patch, err := manifest.AnnotatePod(pod, map[string]string{"example.org/ip": "10.0.0.1"})
		Expect(patched(pod, patch, err).Annotations).To(HaveKeyWithValue("example.org/ip", "10.0.0.1"))
		Expect(string(patch)).To(ContainSubstring(`"uid":"uid-of-the-vm"`))
	})
})

var _ = Describe("An attachment", func() {
	It("gets each proof beside those that it had, and knows the last, wherever the API server puts it", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: running(machine())}.Pod()
		for range 11 {
			patch, err := manifest.AddRelease(attachment, manifest.Release(attachment))
			attachment = patched(attachment, patch, err)
		}
		Expect(attachment.Spec.EphemeralContainers).To(HaveLen(11))
		Expect(manifest.LastRelease(attachment)).To(Equal("release-11"))
	})
})

var _ = Describe("A group's budget", func() {
	vm := machine()
	vm.Group, vm.Budget = "web", &manifest.Budget{MaxUnavailable: new(int32(1))}

	It("is made right for another number of machines, under the condition that it has not changed", func() {
		budget := vm.Budget.Object(vm, running(vm), 3)
		budget.ResourceVersion = "7"
		patch, err := manifest.Recount(budget, 5)
		Expect(patched(budget, patch, err).Spec.MinAvailable).To(HaveValue(Equal(intstr.FromInt32(4))))
		Expect(string(patch)).To(ContainSubstring(`"resourceVersion":"7"`))
	})

	DescribeTable("is left alone", func(budget manifest.Budget, machines int) {
		Expect(manifest.Recount(budget.Object(vm, running(vm), 3), machines)).To(BeNil())
	},
		Entry("when it is right", manifest.Budget{MaxUnavailable: new(int32(1))}, 3),
		Entry("when it does not depend on their number", manifest.Budget{MinAvailable: new(int32(2))}, 9),
	)

	It("is left alone when it has no rule of the CPI's", func() {
		Expect(manifest.Recount(&policyv1.PodDisruptionBudget{}, 3)).To(BeNil())
	})
})

var _ = Describe("A range of addresses that BOSH manages", func() {
	It("is a pool that no node matches", func() {
		golden("ip-pool", manifest.IPPool(netip.MustParsePrefix("10.9.0.0/16"), "d1", manifest.PoolWishes{VXLANMode: "Always", NATOutgoing: true}))
	})

	It("is reserved in a pool of the cluster's", func() {
		golden("ip-reservation", manifest.IPReservation(netip.MustParsePrefix("fd00::/112"), "d1"))
	})
})

var _ = Describe("A disk's snapshot", func() {
	It("names the claim, and carries the director's metadata", func() {
		metadata, err := manifest.Describe(map[string]any{"job": "db", "name": "db/0"})
		Expect(err).NotTo(HaveOccurred())
		golden("snapshot", manifest.Snapshot("snapshot-1", "d1", manifest.Disk{Name: "disk-1", Namespace: "bosh"}.Claim(), metadata))
	})
})

package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/director"
)

// recordings has a folder for each release of which a recording was made, see recording_test.go.
const recordings = "testdata/recorded"

// recording is what one release has left in a namespace.
type recording struct {
	// Disks are the CIDs of the disks by what they are: attached, bound, recreated, used, unused.
	Disks    map[string]string `json:"disks"`
	Snapshot string            `json:"snapshot"`
}

// The VMs of every recording.
const (
	recordedVM        = "agent-recorded"  // with a Service, in an instance group, with the disk attached
	recordedRecreated = "agent-recreated" // with disk_strategy: recreate and the disk recreated
	recordedBound     = "agent-bound"     // at a static address, with the disk bound
	recordedCut       = "agent-cut"       // of a create_vm that was killed
)

func recordedReleases() []string {
	folders, err := filepath.Glob(recordings + "/*/objects.yaml")
	if err != nil {
		panic(err)
	}
	var releases []string
	for _, each := range folders {
		releases = append(releases, filepath.Base(filepath.Dir(each)))
	}
	return releases
}

var _ = Describe("What a release has left in a cluster,", Label("each-version"), func() {
	for _, release := range recordedReleases() {
		Context("as it was recorded of "+release+",", Ordered, func() {
			var (
				w      world
				left   recording
				before map[string]types.UID
			)
			BeforeAll(func(ctx context.Context) {
				w = newWorld(ctx)
				raw, err := os.ReadFile(filepath.Join(recordings, release, "names.yaml"))
				Expect(err).NotTo(HaveOccurred())
				Expect(yaml.UnmarshalStrict(raw, &left)).To(Succeed())
				w.restore(ctx, filepath.Join(recordings, release, "objects.yaml"))
				w.admitFormer(ctx)
				w.Director = w.prefetching(ctx, enabled, nil)
				before = w.uids(ctx)
			})
			// same expects all that is still there to be what was there.
			same := func(ctx context.Context) {
				GinkgoHelper()
				for name, uid := range w.uids(ctx) {
					if was, known := before[name]; known {
						Expect(uid).To(Equal(was), name+" was made anew")
					}
				}
			}
			disks := func(ctx context.Context, vm string) string { return string(w.must(ctx, "get_disks", vm).Result) }
			list := func(disk string) string { return `["` + left.Disks[disk] + `"]` }

			It("is found by this one", func(ctx context.Context) {
				for _, vm := range []string{recordedVM, recordedRecreated, recordedBound} {
					Expect(string(w.must(ctx, "has_vm", vm).Result)).To(Equal("true"))
				}
				for _, disk := range left.Disks {
					Expect(string(w.must(ctx, "has_disk", disk).Result)).To(Equal("true"))
				}
				Expect(disks(ctx, recordedVM)).To(MatchJSON(list("attached")))
				Expect(disks(ctx, recordedRecreated)).To(MatchJSON(list("recreated")))
				Expect(disks(ctx, recordedBound)).To(MatchJSON(list("bound")))
				Expect(w.uids(ctx)).To(Equal(before))
			})

			It("has nothing left over but what a killed call left, which is removed", func(ctx context.Context) {
				left := ContainSubstring("Pod " + w.namespace + "/" + recordedCut + " (")
				Eventually(w.collect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
					And(left, Not(ContainSubstring(": stays"))), ContainSubstring("-confirm")))
				Expect(w.uids(ctx)).To(Equal(before))
				Expect(w.collect(ctx, director.UUID, "-confirm")).To(ConsistOf(left))
				same(ctx)
			})

			It("takes every call of a running deployment, and nothing is made anew", func(ctx context.Context) {
				w.must(ctx, "set_vm_metadata", recordedVM, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0", "new": "yes"})
				w.must(ctx, "set_disk_metadata", left.Disks["attached"], map[string]any{"deployment": "cf"})
				w.must(ctx, "attach_disk", recordedVM, left.Disks["attached"]) // which it has
				w.must(ctx, "attach_disk", recordedBound, left.Disks["bound"])
				same(ctx)
				Eventually(w.uids).WithContext(ctx).Should(HaveLen(len(before)-len([]string{"Pod", "Secret"})), "those of %s are gone, and nothing is added", recordedCut)

				yes := "yes"
				Expect(w.annotate(ctx, recordedVM, "test/reboots", &yes)).To(Succeed())
				w.must(ctx, "reboot_vm", recordedVM)
				Expect(disks(ctx, recordedVM)).To(MatchJSON(list("attached")))
				same(ctx)
			})

			It("has its disks grow, be snapshot, and go from one VM to another", func(ctx context.Context) {
				used := left.Disks["used"]
				w.must(ctx, "resize_disk", used, 128)
				w.must(ctx, "delete_snapshot", w.must(ctx, "snapshot_disk", used, map[string]any{}).Text())
				w.must(ctx, "attach_disk", recordedVM, used)
				w.must(ctx, "attach_disk", recordedVM, left.Disks["unused"])
				w.must(ctx, "detach_disk", recordedVM, left.Disks["attached"])
				w.must(ctx, "detach_disk", recordedBound, left.Disks["bound"])
				w.must(ctx, "detach_disk", recordedVM, used)
				same(ctx)
				other := w.createVM(ctx, "of-this-release", left.Disks["attached"])
				w.must(ctx, "attach_disk", other, left.Disks["attached"])
				w.must(ctx, "delete_vm", other)
				same(ctx)
			})

			It("gives a VM that is made anew for each disk its disks", func(ctx context.Context) {
				w.must(ctx, "detach_disk", recordedRecreated, left.Disks["recreated"])
				Expect(disks(ctx, recordedRecreated)).To(MatchJSON(`[]`))
				w.must(ctx, "attach_disk", recordedRecreated, left.Disks["recreated"])
				Expect(disks(ctx, recordedRecreated)).To(MatchJSON(list("recreated")))
			})

			It("is deleted without a trace", func(ctx context.Context) {
				for _, vm := range []string{recordedVM, recordedRecreated, recordedBound} {
					w.must(ctx, "delete_vm", vm)
				}
				w.must(ctx, "delete_snapshot", left.Snapshot)
				for _, disk := range left.Disks {
					w.must(ctx, "delete_disk", disk)
				}
				w.must(ctx, "delete_stemcell", stemcellCID)
				Eventually(func() []string {
					var names []string
					for name := range w.uids(ctx) {
						names = append(names, name)
					}
					return names
				}).WithContext(ctx).Should(BeEmpty())
			})
		})
	}

	It("is recorded, of this one too, with all kinds of objects that it makes", func() {
		Expect(recordedReleases()).NotTo(BeEmpty())
		for _, release := range recordedReleases() {
			raw, err := os.ReadFile(filepath.Join(recordings, release, "objects.yaml"))
			Expect(err).NotTo(HaveOccurred())
			for _, kind := range []string{"Pod", "PodTemplate", "Secret", "PersistentVolumeClaim", "Service", "PodDisruptionBudget", "VolumeSnapshot", "DaemonSet"} {
				Expect(strings.Count(string(raw), "\nkind: "+kind+"\n")).NotTo(BeZero(), "%s of %s", kind, release)
			}
		}
	})
})

// uids are those of all that carries the CPI's label in the namespace, by kind and name.
func (w world) uids(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	found := map[string]types.UID{}
	for _, object := range w.made(ctx) {
		found[object.GetKind()+"/"+object.GetName()] = object.GetUID()
	}
	return found
}

// owners are the UIDs of the object's owners.
func owners(object metav1.Object) []types.UID {
	var uids []types.UID
	for _, owner := range object.GetOwnerReferences() {
		uids = append(uids, owner.UID)
	}
	return uids
}

// admitFormer does what manifests/admission-scripts.yaml asks for while two releases are in use: the policy goes on allowing the
// programs that the former's helpers run.
func (w world) admitFormer(ctx context.Context) {
	GinkgoHelper()
	programs, err := cluster.CoreV1().ConfigMaps(w.namespace).Get(ctx, "bosh-cpi-scripts", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	helpers, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleAttachment})
	Expect(err).NotTo(HaveOccurred())
	Expect(helpers.Items).NotTo(BeEmpty())
	for _, helper := range helpers.Items {
		own := manifest.OwnContainer(&helper)
		for _, command := range [][]string{own.Command, own.Lifecycle.PostStart.Exec.Command} { // /bin/bash -c PROGRAM NAME
			programs.Data[command[3]+".former"] = command[2]
		}
	}
	_, err = cluster.CoreV1().ConfigMaps(w.namespace).Update(ctx, programs, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

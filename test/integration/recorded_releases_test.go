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

// recordings has a folder for each release of which a recording was made, see record_release_test.go.
const recordings = "testdata/recorded"

// releaseRecording is what one release has left in a namespace.
type releaseRecording struct {
	// Disks are the CIDs of the disks by what they are: attached, bound, recreated, used, unused.
	Disks    map[string]string `json:"disks"`
	Snapshot string            `json:"snapshot"`
}

// The VMs of every recording.
const (
	recordedVM          = "agent-recorded"  // with a Service, in an instance group, with the disk attached
	recordedRecreateVM  = "agent-recreated" // with disk_strategy: recreate and the disk recreated
	recordedBindVM      = "agent-bound"     // at a static address, with the disk bound
	recordedInterrupted = "agent-cut"       // of a create_vm that was killed
)

func recordedReleases() []string {
	folders, err := filepath.Glob(recordings + "/*/objects.yaml")
	if err != nil {
		panic(err)
	}
	var releases []string
	for _, file := range folders {
		releases = append(releases, filepath.Base(filepath.Dir(file)))
	}
	return releases
}

var _ = Describe("What a release has left in a cluster,", Label("each-version"), func() {
	for _, release := range recordedReleases() {
		Context("as it was recorded of "+release+",", Ordered, func() {
			var (
				env          testEnv
				recording    releaseRecording
				previousUIDs map[string]types.UID
			)
			BeforeAll(func(ctx context.Context) {
				env = newTestEnv(ctx)
				raw, err := os.ReadFile(filepath.Join(recordings, release, "names.yaml"))
				Expect(err).NotTo(HaveOccurred())
				Expect(yaml.UnmarshalStrict(raw, &recording)).To(Succeed())
				env.restoreObjects(ctx, filepath.Join(recordings, release, "objects.yaml"))
				env.allowFormerPrograms(ctx)
				env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
				previousUIDs = env.objectUIDs(ctx)
			})
			// same expects all that is still there to be what was there.
			expectSameObjects := func(ctx context.Context) {
				GinkgoHelper()
				for name, uid := range env.objectUIDs(ctx) {
					if was, known := previousUIDs[name]; known {
						Expect(uid).To(Equal(was), name+" was made anew")
					}
				}
			}
			disks := func(ctx context.Context, vm string) string { return string(env.mustCall(ctx, "get_disks", vm).Result) }
			diskList := func(disk string) string { return `["` + recording.Disks[disk] + `"]` }

			It("is found by this one", func(ctx context.Context) {
				for _, vm := range []string{recordedVM, recordedRecreateVM, recordedBindVM} {
					Expect(string(env.mustCall(ctx, "has_vm", vm).Result)).To(Equal("true"))
				}
				for _, disk := range recording.Disks {
					Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
				}
				Expect(disks(ctx, recordedVM)).To(MatchJSON(diskList("attached")))
				Expect(disks(ctx, recordedRecreateVM)).To(MatchJSON(diskList("recreated")))
				Expect(disks(ctx, recordedBindVM)).To(MatchJSON(diskList("bound")))
				Expect(env.objectUIDs(ctx)).To(Equal(previousUIDs))
			})

			It("has nothing left over but what a killed call left, which is removed", func(ctx context.Context) {
				orphan := ContainSubstring("Pod " + env.namespace + "/" + recordedInterrupted + " (")
				Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
					And(orphan, Not(ContainSubstring(": stays"))), ContainSubstring("-confirm")))
				Expect(env.objectUIDs(ctx)).To(Equal(previousUIDs))
				Expect(env.runCollect(ctx, director.UUID, "-confirm")).To(ConsistOf(orphan))
				expectSameObjects(ctx)
			})

			It("takes every call of a running deployment, and nothing is made anew", func(ctx context.Context) {
				env.mustCall(ctx, "set_vm_metadata", recordedVM, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0", "new": "yes"})
				env.mustCall(ctx, "set_disk_metadata", recording.Disks["attached"], map[string]any{"deployment": "cf"})
				env.mustCall(ctx, "attach_disk", recordedVM, recording.Disks["attached"]) // which it has
				env.mustCall(ctx, "attach_disk", recordedBindVM, recording.Disks["bound"])
				expectSameObjects(ctx)
				Eventually(env.objectUIDs).WithContext(ctx).Should(HaveLen(len(previousUIDs)-len([]string{"Pod", "Secret"})), "those of %s are gone, and nothing is added", recordedInterrupted)

				yes := "yes"
				Expect(env.annotatePod(ctx, recordedVM, "test/reboots", &yes)).To(Succeed())
				env.mustCall(ctx, "reboot_vm", recordedVM)
				Expect(disks(ctx, recordedVM)).To(MatchJSON(diskList("attached")))
				expectSameObjects(ctx)
			})

			It("has its disks grow, be snapshot, and go from one VM to another", func(ctx context.Context) {
				used := recording.Disks["used"]
				env.mustCall(ctx, "resize_disk", used, 128)
				env.mustCall(ctx, "delete_snapshot", env.mustCall(ctx, "snapshot_disk", used, map[string]any{}).Text())
				env.mustCall(ctx, "attach_disk", recordedVM, used)
				env.mustCall(ctx, "attach_disk", recordedVM, recording.Disks["unused"])
				env.mustCall(ctx, "detach_disk", recordedVM, recording.Disks["attached"])
				env.mustCall(ctx, "detach_disk", recordedBindVM, recording.Disks["bound"])
				env.mustCall(ctx, "detach_disk", recordedVM, used)
				expectSameObjects(ctx)
				other := env.createVM(ctx, "of-this-release", recording.Disks["attached"])
				env.mustCall(ctx, "attach_disk", other, recording.Disks["attached"])
				env.mustCall(ctx, "delete_vm", other)
				expectSameObjects(ctx)
			})

			It("gives a VM that is made anew for each disk its disks", func(ctx context.Context) {
				env.mustCall(ctx, "detach_disk", recordedRecreateVM, recording.Disks["recreated"])
				Expect(disks(ctx, recordedRecreateVM)).To(MatchJSON(`[]`))
				env.mustCall(ctx, "attach_disk", recordedRecreateVM, recording.Disks["recreated"])
				Expect(disks(ctx, recordedRecreateVM)).To(MatchJSON(diskList("recreated")))
			})

			It("is deleted without a trace", func(ctx context.Context) {
				for _, vm := range []string{recordedVM, recordedRecreateVM, recordedBindVM} {
					env.mustCall(ctx, "delete_vm", vm)
				}
				env.mustCall(ctx, "delete_snapshot", recording.Snapshot)
				for _, disk := range recording.Disks {
					env.mustCall(ctx, "delete_disk", disk)
				}
				env.mustCall(ctx, "delete_stemcell", stemcellCID)
				Eventually(func() []string {
					var names []string
					for name := range env.objectUIDs(ctx) {
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

// objectUIDs are those of all that carries the CPI's label in the namespace, by kind and name.
func (env testEnv) objectUIDs(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	found := map[string]types.UID{}
	for _, object := range env.listManagedObjects(ctx) {
		found[object.GetKind()+"/"+object.GetName()] = object.GetUID()
	}
	return found
}

// ownerUIDs are the UIDs of the object's owners.
func ownerUIDs(object metav1.Object) []types.UID {
	var uids []types.UID
	for _, owner := range object.GetOwnerReferences() {
		uids = append(uids, owner.UID)
	}
	return uids
}

// allowFormerPrograms does what manifests/admission-scripts.yaml asks for while two releases are in use: the policy goes on allowing the
// programs that the former's helpers run.
func (env testEnv) allowFormerPrograms(ctx context.Context) {
	GinkgoHelper()
	programs, err := cluster.CoreV1().ConfigMaps(env.namespace).Get(ctx, "bosh-cpi-scripts", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	helpers, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleAttachment})
	Expect(err).NotTo(HaveOccurred())
	Expect(helpers.Items).NotTo(BeEmpty())
	for _, helper := range helpers.Items {
		own := manifest.OwnContainer(&helper)
		for _, command := range [][]string{own.Command, own.Lifecycle.PostStart.Exec.Command} { // /bin/bash -c PROGRAM NAME
			programs.Data[command[3]+".former"] = command[2]
		}
	}
	_, err = cluster.CoreV1().ConfigMaps(env.namespace).Update(ctx, programs, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

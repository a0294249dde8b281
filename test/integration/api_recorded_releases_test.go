package integration

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
)

// recordings is the path of the directory with a subdirectory for each recorded release. See api_record_release_test.go.
const recordings = "testdata/recorded"

// releaseRecording contains the CIDs of the objects created by a release in a namespace.
type releaseRecording struct {
	// Disks are the CIDs of the disks, by the names attached, bound, recreated, used and unused.
	Disks    map[string]string `json:"disks"`
	Snapshot string            `json:"snapshot"`
}

// The VMs of every recording.
const (
	recordedVM          = "agent-recorded"  // with a Service, an instance group and the disk "attached"
	recordedRecreateVM  = "agent-recreated" // with disk_strategy: recreate and the disk "recreated"
	recordedBindVM      = "agent-bound"     // with a static address and the disk "bound"
	recordedInterrupted = "agent-cut"       // of an interrupted create_vm
)

// thisRelease is recorded by the test itself.
const thisRelease = "of this release"

// recordedReleases returns the names of the recorded releases, and thisRelease.
func recordedReleases() []string {
	files, err := filepath.Glob(recordings + "/*/objects.yaml")
	if err != nil {
		panic(err)
	}
	releases := []string{thisRelease}
	for _, file := range files {
		releases = append(releases, filepath.Base(filepath.Dir(file)))
	}
	return releases
}

var _ = Describe("Objects of a release", Label("each-version"), func() {
	for _, release := range recordedReleases() {
		Context("in the recording "+release, Ordered, func() {
			var (
				env          testEnv
				dir          = filepath.Join(recordings, release)
				recording    releaseRecording
				previousUIDs map[string]types.UID
			)
			BeforeAll(func(ctx context.Context) {
				if release == thisRelease {
					dir = GinkgoT().TempDir()
					newTestEnv(ctx).writeRecording(ctx, dir)
				}
				env = newTestEnv(ctx)
				raw, err := os.ReadFile(filepath.Join(dir, "names.yaml"))
				Expect(err).NotTo(HaveOccurred())
				Expect(yaml.UnmarshalStrict(raw, &recording)).To(Succeed())
				env.restoreObjects(ctx, filepath.Join(dir, "objects.yaml"))
				env.allowPreviousScripts(ctx)
				env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
				previousUIDs = env.objectUIDs(ctx)
			})
			// expectSameObjects expects that no existing object was recreated.
			expectSameObjects := func(ctx context.Context) {
				GinkgoHelper()
				for name, uid := range env.objectUIDs(ctx) {
					if previous, known := previousUIDs[name]; known {
						Expect(uid).To(Equal(previous), name+" was recreated")
					}
				}
			}
			getDisks := func(ctx context.Context, vm string) string { return string(env.mustCall(ctx, "get_disks", vm).Result) }
			diskList := func(disk string) string { return `["` + recording.Disks[disk] + `"]` }

			It("include all kinds of objects that the CPI creates", func() {
				raw, err := os.ReadFile(filepath.Join(dir, "objects.yaml"))
				Expect(err).NotTo(HaveOccurred())
				for _, kind := range []string{"Pod", "PodTemplate", "Secret", "PersistentVolumeClaim", "Service", "PodDisruptionBudget", "VolumeSnapshot", "DaemonSet"} {
					Expect(string(raw)).To(ContainSubstring("\nkind: " + kind + "\n"))
				}
			})

			It("are found by this release", func(ctx context.Context) {
				for _, vm := range []string{recordedVM, recordedRecreateVM, recordedBindVM} {
					Expect(string(env.mustCall(ctx, "has_vm", vm).Result)).To(Equal("true"))
				}
				for _, disk := range recording.Disks {
					Expect(string(env.mustCall(ctx, "has_disk", disk).Result)).To(Equal("true"))
				}
				Expect(getDisks(ctx, recordedVM)).To(MatchJSON(diskList("attached")))
				Expect(getDisks(ctx, recordedRecreateVM)).To(MatchJSON(diskList("recreated")))
				Expect(getDisks(ctx, recordedBindVM)).To(MatchJSON(diskList("bound")))
				Expect(env.objectUIDs(ctx)).To(Equal(previousUIDs))
			})

			It("are not orphaned, except for those of the interrupted call, which -collect deletes", func(ctx context.Context) {
				orphan := ContainSubstring("Pod " + env.namespace + "/" + recordedInterrupted + " (")
				Eventually(env.runCollect).WithContext(ctx).WithArguments(director.UUID).Should(ConsistOf(
					And(orphan, Not(ContainSubstring(": kept"))), ContainSubstring("-confirm")))
				Expect(env.objectUIDs(ctx)).To(Equal(previousUIDs))
				Expect(env.runCollect(ctx, director.UUID, "-confirm")).To(ConsistOf(orphan))
				expectSameObjects(ctx)
			})

			It("support all calls of a running deployment, and none is recreated", func(ctx context.Context) {
				env.mustCall(ctx, "set_vm_metadata", recordedVM, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0", "new": "yes"})
				env.mustCall(ctx, "set_disk_metadata", recording.Disks["attached"], map[string]any{"deployment": "cf"})
				env.mustCall(ctx, "attach_disk", recordedVM, recording.Disks["attached"]) // already attached
				env.mustCall(ctx, "attach_disk", recordedBindVM, recording.Disks["bound"])
				expectSameObjects(ctx)
				Eventually(env.objectUIDs).WithContext(ctx).Should(HaveLen(len(previousUIDs)-len([]string{"Pod", "Secret"})), "the objects of %s were deleted, and none was added", recordedInterrupted)

				Expect(env.annotatePod(ctx, recordedVM, "test/reboots", new("yes"))).To(Succeed())
				env.mustCall(ctx, "reboot_vm", recordedVM)
				Expect(getDisks(ctx, recordedVM)).To(MatchJSON(diskList("attached")))
				expectSameObjects(ctx)
			})

			It("support resize_disk, snapshot_disk, and moving a disk to another VM", func(ctx context.Context) {
				used := recording.Disks["used"]
				env.mustCall(ctx, "resize_disk", used, 128)
				env.mustCall(ctx, "delete_snapshot", env.mustCall(ctx, "snapshot_disk", used, map[string]any{}).Text())
				env.mustCall(ctx, "attach_disk", recordedVM, used)
				env.mustCall(ctx, "attach_disk", recordedVM, recording.Disks["unused"])
				env.mustCall(ctx, "detach_disk", recordedVM, recording.Disks["attached"])
				env.mustCall(ctx, "detach_disk", recordedBindVM, recording.Disks["bound"])
				env.mustCall(ctx, "detach_disk", recordedVM, used)
				expectSameObjects(ctx)
				other := env.createVM(ctx, "new", recording.Disks["attached"])
				env.mustCall(ctx, "attach_disk", other, recording.Disks["attached"])
				env.mustCall(ctx, "delete_vm", other)
				expectSameObjects(ctx)
			})

			It("support detach_disk and attach_disk of a VM with disk_strategy: recreate", func(ctx context.Context) {
				env.mustCall(ctx, "detach_disk", recordedRecreateVM, recording.Disks["recreated"])
				Expect(getDisks(ctx, recordedRecreateVM)).To(MatchJSON(`[]`))
				env.mustCall(ctx, "attach_disk", recordedRecreateVM, recording.Disks["recreated"])
				Expect(getDisks(ctx, recordedRecreateVM)).To(MatchJSON(diskList("recreated")))
			})

			It("are deleted completely", func(ctx context.Context) {
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
})

// objectUIDs returns the UIDs of the objects created by the CPI in the namespace, by kind/name.
func (env testEnv) objectUIDs(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	found := map[string]types.UID{}
	for _, object := range env.listManagedObjects(ctx) {
		found[object.GetKind()+"/"+object.GetName()] = object.GetUID()
	}
	return found
}

// ownerUIDs returns the UIDs of the object's owners.
func ownerUIDs(object metav1.Object) []types.UID {
	var uids []types.UID
	for _, owner := range object.GetOwnerReferences() {
		uids = append(uids, owner.UID)
	}
	return uids
}

// allowPreviousScripts adds the scripts of the recorded release's helper Pods to the admission policy, which is necessary while
// two releases are in use.
func (env testEnv) allowPreviousScripts(ctx context.Context) {
	GinkgoHelper()
	scripts, err := cluster.CoreV1().ConfigMaps(env.namespace).Get(ctx, "bosh-cpi-scripts", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	helpers, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleAttachment})
	Expect(err).NotTo(HaveOccurred())
	Expect(helpers.Items).NotTo(BeEmpty())
	for _, helper := range helpers.Items {
		container := manifest.OwnContainer(&helper)
		for _, command := range [][]string{container.Command, container.Lifecycle.PostStart.Exec.Command} { // /bin/bash -c SCRIPT NAME
			scripts.Data[command[3]+".previous"] = command[2]
		}
	}
	_, err = cluster.CoreV1().ConfigMaps(env.namespace).Update(ctx, scripts, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

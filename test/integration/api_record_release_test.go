package integration

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// updateRecorded is an environment variable. If it is set to the name of this release, the test writes a recording under that name.
const updateRecorded = "UPDATE_RECORDED"

// recordedNamespace replaces the name of the namespace in recordings.
const recordedNamespace = "the-namespace"

var _ = Describe("A recording of the objects that this release creates", func() {
	It("is written on request", func(ctx context.Context) {
		release := os.Getenv(updateRecorded)
		if release == "" {
			Skip(updateRecorded + " is not set")
		}
		newTestEnv(ctx).writeRecording(ctx, filepath.Join(recordings, release))
	})
})

// writeRecording creates objects in the namespace, and records them in dir.
func (env testEnv) writeRecording(ctx context.Context, dir string) {
	GinkgoHelper()
	recording := env.createRecordedObjects(ctx)
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	names, err := yaml.Marshal(recording)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "names.yaml"), names, 0o644)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "objects.yaml"), env.recordObjects(ctx), 0o644)).To(Succeed())
}

// createRecordedObjects creates at least one object of each kind that the CPI creates.
func (env testEnv) createRecordedObjects(ctx context.Context) releaseRecording {
	GinkgoHelper()
	env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
	env.mustCall(ctx, "create_stemcell", "image", lightStemcell)

	properties := servicesProperties(namedService(nil))
	properties["disruption_budget"] = maxOneUnavailable()["disruption_budget"]
	env.createVMWithProperties(ctx, strings.TrimPrefix(recordedVM, "agent-"), properties, groupEnv(groupName))
	env.mustCall(ctx, "set_vm_metadata", recordedVM, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0"})
	used := env.createUsedDisk(ctx, recordedVM, map[string]any{"storage_class": "growing"})
	recording := releaseRecording{Disks: map[string]string{"used": used, "attached": env.createDisk(ctx), "unused": env.createDisk(ctx)}}
	env.mustCall(ctx, "attach_disk", recordedVM, recording.Disks["attached"])
	env.mustCall(ctx, "set_disk_metadata", recording.Disks["attached"], map[string]any{"deployment": "cf"})
	recording.Snapshot = env.mustCall(ctx, "snapshot_disk", used, map[string]any{"deployment": "cf"}).Text()

	recreateEnv := env.withDiskStrategy(diskStrategies[recreateStrategy])
	recreateEnv.createVM(ctx, strings.TrimPrefix(recordedRecreateVM, "agent-"))
	env.mustCall(ctx, "set_vm_metadata", recordedRecreateVM, map[string]any{"job": "sandboxed"})
	recording.Disks["recreated"] = recreateEnv.createDisk(ctx)
	env.mustCall(ctx, "attach_disk", recordedRecreateVM, recording.Disks["recreated"])

	env.mustCall(ctx, "create_vm", strings.TrimPrefix(recordedBindVM, "agent-"), stemcellCID, map[string]any{}, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
	env.mustCall(ctx, "set_vm_metadata", recordedBindVM, map[string]any{"job": "shared"})
	recording.Disks["bound"] = env.mustCall(ctx, "create_disk", 64, map[string]any{"attach": "bind"}, recordedBindVM).Text()
	env.mustCall(ctx, "attach_disk", recordedBindVM, recording.Disks["bound"])

	const settingsRequest = 3 // creates the agent settings
	Expect(env.interruptCall(ctx, settingsRequest, "create_vm", strings.TrimPrefix(recordedInterrupted, "agent-"), stemcellCID,
		map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
	return recording
}

// excludedKinds are kinds of objects with the CPI's label that are not recorded: Events, and the Endpoints that a controller creates for
// Services.
var excludedKinds = []string{"Event", "Endpoints"}

// listManagedObjects returns the objects of all kinds created by the CPI in the namespace. It excludes objects of controllers.
func (env testEnv) listManagedObjects(ctx context.Context) []unstructured.Unstructured {
	GinkgoHelper()
	served, err := cluster.Discovery().ServerPreferredNamespacedResources()
	Expect(err).NotTo(HaveOccurred())
	var found []unstructured.Unstructured
	for _, group := range served {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(excludedKinds, kind.Kind) {
				continue
			}
			list, err := dynamicClient.Resource(version.WithResource(kind.Name)).Namespace(env.namespace).List(ctx,
				metav1.ListOptions{LabelSelector: manifest.ManagedSelector})
			Expect(err).NotTo(HaveOccurred())
			for _, object := range list.Items {
				if metav1.GetControllerOf(&object) == nil {
					found = append(found, object)
				}
			}
		}
	}
	return found
}

// recordObjects returns the objects created by the CPI as YAML, without fields added by the API server and controllers.
func (env testEnv) recordObjects(ctx context.Context) []byte {
	GinkgoHelper()
	var recording bytes.Buffer
	for _, object := range env.listManagedObjects(ctx) {
		meta := object.Object["metadata"].(map[string]any)
		for _, field := range []string{"resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(meta, field)
		}
		delete(object.Object, "status")
		for key := range object.GetAnnotations() {
			if strings.Contains(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "volume.beta.kubernetes.io/") ||
				strings.HasPrefix(key, "deprecated.daemonset.template.generation") {
				unstructured.RemoveNestedField(object.Object, "metadata", "annotations", key)
			}
		}
		switch object.GetKind() {
		case "PersistentVolumeClaim":
			unstructured.RemoveNestedField(object.Object, "spec", "volumeName") // volumes are not recorded
		case "Service": // in another cluster, these addresses and ports may be in use
			for _, field := range []string{"clusterIP", "clusterIPs"} {
				unstructured.RemoveNestedField(object.Object, "spec", field)
			}
			ports, _, err := unstructured.NestedSlice(object.Object, "spec", "ports")
			Expect(err).NotTo(HaveOccurred())
			for _, port := range ports {
				delete(port.(map[string]any), "nodePort")
			}
			Expect(unstructured.SetNestedSlice(object.Object, ports, "spec", "ports")).To(Succeed())
		}
		content, err := yaml.Marshal(object.Object)
		Expect(err).NotTo(HaveOccurred())
		recording.WriteString("---\n")
		recording.Write(content)
	}
	return bytes.ReplaceAll(recording.Bytes(), []byte(env.namespace), []byte(recordedNamespace))
}

// restoreObjects creates the objects in the file, owners first. The API server assigns new UIDs, which replace the recorded ones in owner
// references.
func (env testEnv) restoreObjects(ctx context.Context, path string) {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	content := strings.ReplaceAll(string(raw), recordedNamespace, env.namespace)
	var pending []string
	restoredUIDs := map[types.UID]types.UID{}
	for document := range strings.SplitSeq(strings.TrimPrefix(content, "---\n"), "\n---\n") {
		pending = append(pending, document)
	}
	for len(pending) > 0 {
		var postponed []string
		for _, document := range pending {
			var object unstructured.Unstructured
			Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
			if slices.ContainsFunc(ownerUIDs(&object), func(owner types.UID) bool { return restoredUIDs[owner] == "" }) {
				postponed = append(postponed, document)
				continue
			}
			for recorded, restored := range restoredUIDs {
				document = strings.ReplaceAll(document, string(recorded), string(restored))
			}
			restoredUIDs[object.GetUID()] = env.createObject(ctx, document)
		}
		Expect(len(postponed)).To(BeNumerically("<", len(pending)), "owners that were not recorded: %v", postponed)
		pending = postponed
	}
	env.restoreDiskOwners(ctx, restoredUIDs)
	env.waitRestored(ctx)
}

// restoreDiskOwners replaces the UIDs of Pods in the owner records of disks with the new UIDs. Kinds are recorded in any order: the record
// of a disk that was restored after its attachment Pod already contains the new UID.
func (env testEnv) restoreDiskOwners(ctx context.Context, uids map[types.UID]types.UID) {
	GinkgoHelper()
	disks, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, disk := range disks.Items {
		if restored, recorded := uids[types.UID(disk.Annotations[manifest.AnnotationOwner])]; recorded {
			patch := `{"metadata":{"annotations":{"` + manifest.AnnotationOwner + `":"` + string(restored) + `"}}}`
			_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}
}

// createObject creates the object in the document, and returns its UID.
func (env testEnv) createObject(ctx context.Context, document string) types.UID {
	GinkgoHelper()
	var object unstructured.Unstructured
	Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
	object.SetUID("")
	kind := object.GroupVersionKind()
	created, err := dynamicClient.Resource(kind.GroupVersion().WithResource(strings.ToLower(kind.Kind)+"s")).Namespace(env.namespace).
		Create(ctx, &object, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created.GetUID()
}

// waitRestored waits until the VM Pods and attachment Pods run, and their PVCs are bound.
func (env testEnv) waitRestored(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, object := range env.listManagedObjects(ctx) {
			phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
			switch object.GetKind() {
			case "Pod":
				g.Expect(phase).To(Equal("Running"), object.GetName())
			case "PersistentVolumeClaim":
				if object.GetAnnotations()["volume.kubernetes.io/selected-node"] != "" {
					g.Expect(phase).To(Equal("Bound"), object.GetName())
				}
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

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

	"bosh-kubernetes-cpi/kube/manifest"
)

// updateRecorded is the variable of the environment with the name of a release: a recording of this one is made under it.
const updateRecorded = "UPDATE_RECORDED"

// recordedNamespace stands in files for the namespace in which they were recorded.
const recordedNamespace = "the-namespace"

var _ = Describe("A recording of what this release leaves in a cluster", func() {
	It("is made", func(ctx context.Context) {
		release := os.Getenv(updateRecorded)
		if release == "" {
			Skip(updateRecorded + " names no release to record")
		}
		env := newTestEnv(ctx)
		recording := env.createRecordedObjects(ctx)
		folder := filepath.Join(recordings, release)
		Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
		names, err := yaml.Marshal(recording)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, "names.yaml"), names, 0o644)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "objects.yaml"), env.recordObjects(ctx), 0o644)).To(Succeed())
	})
})

// createRecordedObjects makes of everything that the CPI makes.
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

	recreateEnv := env.withDiskStrategy(diskStrategies[" with disk_strategy: recreate"])
	recreateEnv.createVM(ctx, strings.TrimPrefix(recordedRecreateVM, "agent-"))
	env.mustCall(ctx, "set_vm_metadata", recordedRecreateVM, map[string]any{"job": "sandboxed"})
	recording.Disks["recreated"] = recreateEnv.createDisk(ctx)
	env.mustCall(ctx, "attach_disk", recordedRecreateVM, recording.Disks["recreated"])

	env.mustCall(ctx, "create_vm", strings.TrimPrefix(recordedBindVM, "agent-"), stemcellCID, map[string]any{}, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
	env.mustCall(ctx, "set_vm_metadata", recordedBindVM, map[string]any{"job": "shared"})
	recording.Disks["bound"] = env.mustCall(ctx, "create_disk", 64, map[string]any{"attach": "bind"}, recordedBindVM).Text()
	env.mustCall(ctx, "attach_disk", recordedBindVM, recording.Disks["bound"])

	const untilSettings = 3
	Expect(env.interruptCall(ctx, untilSettings, "create_vm", strings.TrimPrefix(recordedInterrupted, "agent-"), stemcellCID,
		map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})).To(BeTrue())
	return recording
}

// excludedKinds are kinds that carry the CPI's label without being made by it: what it tells in passing, and what Services' controllers
// make of those.
var excludedKinds = []string{"Event", "Endpoints"}

// listManagedObjects is all in the namespace, of whatever kind, that the CPI has made itself.
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
			all, err := dynamicClient.Resource(version.WithResource(kind.Name)).Namespace(env.namespace).List(ctx,
				metav1.ListOptions{LabelSelector: manifest.LabelManagedBy + "=" + manifest.ManagedBy})
			Expect(err).NotTo(HaveOccurred())
			for _, object := range all.Items {
				if metav1.GetControllerOf(&object) == nil {
					found = append(found, object)
				}
			}
		}
	}
	return found
}

// recordObjects is what the CPI has made, as files have it: without what the API server and its controllers add.
func (env testEnv) recordObjects(ctx context.Context) []byte {
	GinkgoHelper()
	var all bytes.Buffer
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
			unstructured.RemoveNestedField(object.Object, "spec", "volumeName") // a volume is the storage's
		case "Service": // what the cluster has chosen, another Service may have there
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
		all.WriteString("---\n")
		all.Write(content)
	}
	return bytes.ReplaceAll(all.Bytes(), []byte(env.namespace), []byte(recordedNamespace))
}

// restoreObjects makes the objects of the file: owners first, since the API server gives each a UID of its own.
func (env testEnv) restoreObjects(ctx context.Context, path string) {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	text := strings.ReplaceAll(string(raw), recordedNamespace, env.namespace)
	var pending []string
	restoredUIDs := map[types.UID]types.UID{}
	for document := range strings.SplitSeq(strings.TrimPrefix(text, "---\n"), "\n---\n") {
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
			for was, is := range restoredUIDs {
				document = strings.ReplaceAll(document, string(was), string(is))
			}
			restoredUIDs[object.GetUID()] = env.createObject(ctx, document)
		}
		Expect(len(postponed)).To(BeNumerically("<", len(pending)), "owners that are not recorded: %v", postponed)
		pending = postponed
	}
	env.restoreDiskOwners(ctx, restoredUIDs)
	env.waitRestored(ctx)
}

// restoreDiskOwners records the Pods that have the disks by the UIDs that they have now.
func (env testEnv) restoreDiskOwners(ctx context.Context, uids map[types.UID]types.UID) {
	GinkgoHelper()
	disks, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, disk := range disks.Items {
		if owner := disk.Annotations[manifest.AnnotationOwner]; owner != "" {
			patch := `{"metadata":{"annotations":{"` + manifest.AnnotationOwner + `":"` + string(uids[types.UID(owner)]) + `"}}}`
			_, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).Patch(ctx, disk.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}
}

// createObject makes the object of the document, and returns its UID.
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

// waitRestored waits until the machines and attachments run, and the claims that they have are bound again.
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

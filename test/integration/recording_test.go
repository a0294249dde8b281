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
		w := newWorld(ctx)
		left := w.leave(ctx)
		folder := filepath.Join(recordings, release)
		Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
		names, err := yaml.Marshal(left)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, "names.yaml"), names, 0o644)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "objects.yaml"), w.record(ctx), 0o644)).To(Succeed())
	})
})

// leave makes of everything that the CPI makes.
func (w world) leave(ctx context.Context) recording {
	GinkgoHelper()
	w.Director = w.prefetching(ctx, enabled, nil)
	w.must(ctx, "create_stemcell", "image", light)

	properties := behind(fixed(nil))
	properties["disruption_budget"] = oneAway()["disruption_budget"]
	w.create(ctx, strings.TrimPrefix(recordedVM, "agent-"), properties, inGroup(group))
	w.must(ctx, "set_vm_metadata", recordedVM, map[string]any{"deployment": "cf", "job": "web", "index": "0", "name": "web/0"})
	used := w.usedDisk(ctx, recordedVM, map[string]any{"storage_class": "growing"})
	left := recording{Disks: map[string]string{"used": used, "attached": w.createDisk(ctx), "unused": w.createDisk(ctx)}}
	w.must(ctx, "attach_disk", recordedVM, left.Disks["attached"])
	w.must(ctx, "set_disk_metadata", left.Disks["attached"], map[string]any{"deployment": "cf"})
	left.Snapshot = w.must(ctx, "snapshot_disk", used, map[string]any{"deployment": "cf"}).Text()

	recreated := w.of(kinds[" with disk_strategy: recreate"])
	recreated.createVM(ctx, strings.TrimPrefix(recordedRecreated, "agent-"))
	w.must(ctx, "set_vm_metadata", recordedRecreated, map[string]any{"job": "sandboxed"})
	left.Disks["recreated"] = recreated.createDisk(ctx)
	w.must(ctx, "attach_disk", recordedRecreated, left.Disks["recreated"])

	w.must(ctx, "create_vm", strings.TrimPrefix(recordedBound, "agent-"), stemcellCID, map[string]any{}, manual("10.9.8.7"), []string{}, map[string]any{})
	w.must(ctx, "set_vm_metadata", recordedBound, map[string]any{"job": "shared"})
	left.Disks["bound"] = w.must(ctx, "create_disk", 64, map[string]any{"attach": "bind"}, recordedBound).Text()
	w.must(ctx, "attach_disk", recordedBound, left.Disks["bound"])

	const untilSettings = 3
	Expect(w.killed(ctx, untilSettings, "create_vm", strings.TrimPrefix(recordedCut, "agent-"), stemcellCID,
		map[string]any{}, onDynamic(), []string{}, map[string]any{})).To(BeTrue())
	return left
}

// ofOthers are kinds that carry the CPI's label without being made by it: what it tells in passing, and what Services' controllers
// make of those.
var ofOthers = []string{"Event", "Endpoints"}

// made is all in the namespace, of whatever kind, that the CPI has made itself.
func (w world) made(ctx context.Context) []unstructured.Unstructured {
	GinkgoHelper()
	served, err := cluster.Discovery().ServerPreferredNamespacedResources()
	Expect(err).NotTo(HaveOccurred())
	var found []unstructured.Unstructured
	for _, group := range served {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(ofOthers, kind.Kind) {
				continue
			}
			all, err := objects.Resource(version.WithResource(kind.Name)).Namespace(w.namespace).List(ctx,
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

// record is what the CPI has made, as files have it: without what the API server and its controllers add.
func (w world) record(ctx context.Context) []byte {
	GinkgoHelper()
	var all bytes.Buffer
	for _, object := range w.made(ctx) {
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
	return bytes.ReplaceAll(all.Bytes(), []byte(w.namespace), []byte(recordedNamespace))
}

// restore makes the objects of the file: owners first, since the API server gives each a UID of its own.
func (w world) restore(ctx context.Context, path string) {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	text := strings.ReplaceAll(string(raw), recordedNamespace, w.namespace)
	var waiting []string
	there := map[types.UID]types.UID{}
	for document := range strings.SplitSeq(strings.TrimPrefix(text, "---\n"), "\n---\n") {
		waiting = append(waiting, document)
	}
	for len(waiting) > 0 {
		var later []string
		for _, document := range waiting {
			var object unstructured.Unstructured
			Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
			if slices.ContainsFunc(owners(&object), func(owner types.UID) bool { return there[owner] == "" }) {
				later = append(later, document)
				continue
			}
			for was, is := range there {
				document = strings.ReplaceAll(document, string(was), string(is))
			}
			there[object.GetUID()] = w.put(ctx, document)
		}
		Expect(len(later)).To(BeNumerically("<", len(waiting)), "owners that are not recorded: %v", later)
		waiting = later
	}
	w.restoreOwners(ctx, there)
	w.awaitRestored(ctx)
}

// restoreOwners records the Pods that have the disks by the UIDs that they have now.
func (w world) restoreOwners(ctx context.Context, uids map[types.UID]types.UID) {
	GinkgoHelper()
	disks, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, disk := range disks.Items {
		if owner := disk.Annotations[manifest.AnnotationOwner]; owner != "" {
			patch := `{"metadata":{"annotations":{"` + manifest.AnnotationOwner + `":"` + string(uids[types.UID(owner)]) + `"}}}`
			_, err := cluster.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, disk.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}
}

// put makes the object of the document, and returns its UID.
func (w world) put(ctx context.Context, document string) types.UID {
	GinkgoHelper()
	var object unstructured.Unstructured
	Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
	object.SetUID("")
	kind := object.GroupVersionKind()
	made, err := objects.Resource(kind.GroupVersion().WithResource(strings.ToLower(kind.Kind)+"s")).Namespace(w.namespace).
		Create(ctx, &object, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return made.GetUID()
}

// awaitRestored waits until the machines and attachments run, and the claims that they have are bound again.
func (w world) awaitRestored(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, object := range w.made(ctx) {
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

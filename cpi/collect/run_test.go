package collect

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

var _ = Describe("Collect", func() {
	var api *memoryapi.Server
	var collector Collector

	BeforeEach(func() {
		api = memoryapi.New()
		collector = Collector{Config: cpi.Config{KubernetesOptions: cpi.KubernetesOptions{NodeImage: stemcells.NodeImageReference}}, Director: "d", MinAge: time.Minute}
	})

	// add stores an object of the director, created an hour ago.
	add := func(resource string, object interface {
		runtime.Object
		metav1.Object
	}) {
		object.SetNamespace("bosh")
		object.SetUID(types.UID("uid-of-" + object.GetName()))
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour)))
		api.Add(resource, "bosh", object)
	}
	collect := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		client, err := kube.NewForConfig(api.Config(), "bosh", 0)
		Expect(err).NotTo(HaveOccurred())
		results, err := collector.Collect(ctx, client)
		Expect(err).NotTo(HaveOccurred())
		outcomes := map[string]string{}
		for _, result := range results {
			outcomes[result.Kind+"/"+result.Name] = result.Outcome
		}
		return outcomes
	}
	addOrphans := func() {
		vm := manifest.VM{Name: "agent-a", Director: "d", Group: "g", Budget: &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}}
		pod := vm.Pod()
		add("pods", pod.Pod)
		add("services", (manifest.Service{Name: "web"}).Object(pod, "d"))
		add("podtemplates", manifest.VM{Name: "agent-b", Director: "d"}.PodTemplate())
		add("volumesnapshots", manifest.VolumeSnapshot("snapshot-1", "d", manifest.Disk{Name: "disk-1"}.PVC(), manifest.Metadata{}))
		add("poddisruptionbudgets", (&manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}).Object(manifest.VM{Name: "x", Director: "d", Group: "gone"}, pod, 1))
		missing := manifest.Disk{Name: "disk-3", Director: "d"}.PVC()
		missing.Labels[manifest.LabelVM], missing.Annotations[manifest.AnnotationOwner] = "agent-c", "uid"
		add("persistentvolumeclaims", missing.PVC)
	}
	resources := []string{"pods", "services", "podtemplates", "volumesnapshots", "poddisruptionbudgets"}

	It("lists orphaned resources, and changes nothing without Confirm", func(ctx context.Context) {
		addOrphans()
		Expect(collect(ctx)).To(And(HaveLen(6), HaveKeyWithValue("Pod/agent-a", "would be deleted"),
			HaveKeyWithValue("PersistentVolumeClaim/disk-3", "would be released")))
		for _, resource := range resources {
			Expect(api.Names(resource)).To(HaveLen(1), resource)
		}
	})

	It("deletes and repairs them with Confirm", func(ctx context.Context) {
		addOrphans()
		collector.Confirm = true
		Expect(collect(ctx)).To(And(HaveLen(6), HaveKeyWithValue("Pod/agent-a", "deleted"), HaveKeyWithValue("PersistentVolumeClaim/disk-3", "released")))
		for _, resource := range resources {
			Expect(api.Names(resource)).To(BeEmpty(), resource)
		}
		Expect(api.Names("persistentvolumeclaims")).To(ConsistOf("disk-3"), "a disk is never deleted")
		Expect(collect(ctx)).To(BeEmpty())
	})

	It("keeps an object of another director, and one that may belong to a running call", func(ctx context.Context) {
		addOrphans()
		collector.Confirm, collector.MinAge = true, 2*time.Hour
		Expect(collect(ctx)).NotTo(HaveKey("VolumeSnapshot/snapshot-1"))
		collector.Director, collector.MinAge = "other", time.Minute
		Expect(collect(ctx)).To(BeEmpty())
	})

	It("attaches a disk again after its attachment Pod was deleted", func(ctx context.Context) {
		vm := manifest.VM{Name: "agent-a", Director: "d"}.Pod()
		vm.Annotations[manifest.AnnotationMetadata] = "{}"
		vm.Spec.NodeName, vm.Status.Phase = "node-1", corev1.PodRunning
		add("pods", vm.Pod)
		disk := manifest.Disk{Name: "disk-1", Director: "d", SizeMiB: 64}.PVC()
		disk.Labels[manifest.LabelVM], disk.Annotations[manifest.AnnotationOwner] = "agent-a", "uid"
		add("persistentvolumeclaims", disk.PVC)
		collector.Confirm = true
		Expect(collect(ctx)).To(Equal(map[string]string{"PersistentVolumeClaim/disk-1": "attached again"}))
		Expect(api.Names("pods")).To(ConsistOf("agent-a", "disk-1-attachment"))
	})

	Describe("with the VMs and disks that the director knows", func() {
		addVM := func(cid string) {
			vm := manifest.VM{Name: cid, Director: "d"}.Pod()
			maps.Copy(vm.Annotations, map[string]string{manifest.AnnotationMetadata: "{}", manifest.AnnotationVMGroup: "web",
				manifest.AnnotationVMIndex: "0", manifest.AnnotationDeployment: "cf"})
			add("pods", vm.Pod)
		}
		addDisk := func(disk manifest.Disk) {
			disk.Director = "d"
			add("persistentvolumeclaims", disk.PVC().PVC)
		}
		collectReasons := func(ctx context.Context) map[string]string {
			GinkgoHelper()
			client, err := kube.NewForConfig(api.Config(), "bosh", 0)
			Expect(err).NotTo(HaveOccurred())
			results, err := collector.Collect(ctx, client)
			Expect(err).NotTo(HaveOccurred())
			reasons := map[string]string{}
			for _, result := range results {
				reasons[result.Name] = result.Reason + ": " + result.Outcome
			}
			return reasons
		}
		BeforeEach(func() {
			collector.Known, collector.Confirm = Known{"agent-known": true, "disk-known": true}, true
			for _, cid := range []string{"agent-known", "agent-unknown"} {
				addVM(cid)
			}
			template := manifest.VM{Name: "agent-recreated", Director: "d"}.PodTemplate()
			template.Template.Annotations[manifest.AnnotationMetadata] = "{}"
			add("podtemplates", template)
			addDisk(manifest.Disk{Name: "disk-known"})
			addDisk(manifest.Disk{Name: "disk-unknown"})
			addDisk(manifest.Disk{Name: "disk-dynamic", DynamicDisk: "logs"})
		})

		It("lists all others with the remedy, and keeps them", func(ctx context.Context) {
			Expect(collectReasons(ctx)).To(Equal(map[string]string{
				"agent-unknown": "the director does not know VM agent-unknown (web/0 of deployment cf); " +
					"to delete it, run `bosh -d cf delete-vm agent-unknown`: kept",
				"agent-recreated": "the director does not know VM agent-recreated; " +
					"to delete it, run `bosh -d DEPLOYMENT delete-vm agent-recreated`: kept",
				"disk-unknown": "the director does not know the disk; to use it, run `bosh attach-disk`; " +
					"if its data is not necessary, delete the PVC: kept",
			}))
		})

		It("is not done without them", func(ctx context.Context) {
			collector.Known = nil
			Expect(collectReasons(ctx)).To(BeEmpty())
		})
	})

	It("reports a failure, and continues with the other resources", func(ctx context.Context) {
		addOrphans()
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			denied := r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/services/web")
			if denied {
				w.WriteHeader(http.StatusForbidden)
			}
			return denied
		}
		collector.Confirm = true
		client, err := kube.NewForConfig(api.Config(), "bosh", 0)
		Expect(err).NotTo(HaveOccurred())
		results, err := collector.Collect(ctx, client)
		Expect(err).To(MatchError(ContainSubstring("Service bosh/web")))
		Expect(results).To(And(HaveLen(6), ContainElement(And(HaveField("Name", "web"), HaveField("Outcome", "failed")))))
		Expect(api.Names("pods")).To(BeEmpty())
	})

	DescribeTable("writes a report", func(confirm bool, results []Result, expected string) {
		out := &bytes.Buffer{}
		collector.Confirm = confirm
		Expect(collector.Write(out, results, true, "-confirm")).To(Succeed())
		Expect(out.String()).To(Equal(expected))
	},
		Entry("without results", false, nil, "no orphaned resources\n"),
		Entry("with the flag that applies it", false, []Result{{"Pod", "bosh", "a", "1h", "no VM", "would be deleted"}},
			"Pod bosh/a (1h old): no VM: would be deleted\nnothing was changed; to delete or repair these resources, run with -confirm\n"),
		Entry("with outcomes", true, []Result{{"Pod", "bosh", "a", "1h", "no VM", "deleted"}}, "Pod bosh/a (1h old): no VM: deleted\n"),
	)
})

package preflight

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

const (
	namespace = "bosh"
	image     = "registry.example.org/stemcell@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// testCluster is an API server in memory with a node and a CSI driver.
type testCluster struct {
	*memoryapi.Server
	config cpi.Config
	// denied are the permissions that reviews deny, as "VERB RESOURCE".
	denied map[string]bool
	// defaultStorageClass is the StorageClass of PVCs without one.
	defaultStorageClass string
	// report is the report of deep checks on nodes.
	report string
	// nodeImageStates are the states, one after the other, of a container with an image volume. The default is that it succeeds.
	nodeImageStates []corev1.ContainerState
}

func newTestCluster() *testCluster {
	c := &testCluster{Server: memoryapi.New(), config: cpi.DefaultConfig(), denied: map[string]bool{}, defaultStorageClass: "fast", report: healthyNode}
	c.config.NodeImage = stemcells.NodeImageReference
	c.Simulate = c.simulate
	c.Add("nodes", "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{"projectcalico.org/IPv4Address": "x"}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: "v1.35.2+k3s1", ContainerRuntimeVersion: "containerd://2.1.5-k3s1"},
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")},
		}})
	c.Add("storageclasses", "", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi",
		AllowVolumeExpansion: new(true), VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)})
	c.Add("csidrivers", "", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi"}})
	c.Add("csinodes", "", &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: "csi", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(20))}}},
	}})
	c.Add("volumesnapshotclasses", "", &extension.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snap",
		Annotations: map[string]string{defaultSnapshotClass: "true"}}, Driver: "csi"})
	return c
}

func (c *testCluster) simulate(obj *memoryapi.Object) bool {
	switch obj.GetKind() {
	case "SelfSubjectAccessReview":
		if obj.Object["reviewed"] == true {
			return false
		}
		verb, _, _ := unstructured.NestedString(obj.Object, "spec", "resourceAttributes", "verb")
		resource, _, _ := unstructured.NestedString(obj.Object, "spec", "resourceAttributes", "resource")
		obj.Object["reviewed"] = true
		Expect(unstructured.SetNestedField(obj.Object, !c.denied[verb+" "+resource], "status", "allowed")).To(Succeed())
		return true
	case "SelfSubjectReview":
		user, _, _ := unstructured.NestedString(obj.Object, "status", "userInfo", "username")
		return user == "" && unstructured.SetNestedField(obj.Object, "jane", "status", "userInfo", "username") == nil
	case "PersistentVolumeClaim":
		if class, found, _ := unstructured.NestedString(obj.Object, "spec", "storageClassName"); !found && class == "" && c.defaultStorageClass != "" {
			return unstructured.SetNestedField(obj.Object, c.defaultStorageClass, "spec", "storageClassName") == nil
		}
	case "Pod":
		started := memoryapi.StartPods("node-1")(obj)
		var pod corev1.Pod
		memoryapi.FromObject(obj, &pod)
		if hasImageVolume(&pod) && len(c.nodeImageStates) > 0 {
			if !started {
				return false
			}
			pod.Status.ContainerStatuses[0].State = c.nodeImageStates[0]
			obj.Object = memoryapi.ToObject(&pod).Object
			go c.changeState(pod.Name, c.nodeImageStates[1:])
			return true
		}
		if !started {
			return false
		}
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: c.report}}
		obj.Object = memoryapi.ToObject(&pod).Object
		return true
	}
	return false
}

// changeState sets the states of the Pod's container, one after the other.
func (c *testCluster) changeState(pod string, states []corev1.ContainerState) {
	defer GinkgoRecover()
	for _, state := range states {
		memoryapi.Update(c.Server, "pods", namespace, pod, &corev1.Pod{}, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].State = state })
	}
}

// hasImageVolume reports whether the Pod is a probe of the image of bosh-node.
func hasImageVolume(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Image != nil && volume.Image.Reference == stemcells.NodeImageReference
	})
}

// setVersions sets the versions of the kubelet and the container runtime of the node.
func (c *testCluster) setVersions(kubelet, runtime string) {
	memoryapi.Update(c.Server, "nodes", "", "node-1", &corev1.Node{}, func(node *corev1.Node) {
		node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: kubelet, ContainerRuntimeVersion: runtime}
	})
}

func (c *testCluster) client() *kube.Client {
	GinkgoHelper()
	client, err := kube.NewForConfig(c.Config(), namespace, time.Second)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// run returns the results by the names of the checks.
func (c *testCluster) run(ctx context.Context) map[string]Result {
	GinkgoHelper()
	results := map[string]Result{}
	for _, result := range Run(ctx, c.config, c.client(), image) {
		results[result.Check] = result
	}
	return results
}

// deny makes the API server reject requests with this part in their path.
func (c *testCluster) deny(part string) {
	c.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, part) {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
}

// endedWith returns the state of a container that ended with this exit code and message.
func endedWith(exitCode int32, message string) []corev1.ContainerState {
	return []corev1.ContainerState{{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message}}}
}

// failedPulls returns the states of a container with an image that the kubelet fails to pull twice, with this message.
func failedPulls(message string) (states []corev1.ContainerState) {
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "ErrImagePull"} {
		states = append(states, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	return states
}

var _ = Describe("Preflight checks", func() {
	var cluster *testCluster
	BeforeEach(func() { cluster = newTestCluster() })

	It("pass in a cluster that meets the requirements", func(ctx context.Context) {
		results := cluster.run(ctx)
		imperfect := map[string]Verdict{}
		for _, result := range results {
			if result.Verdict != OK {
				imperfect[result.Check] = result.Verdict
			}
		}
		// The cluster has no reserved range.
		Expect(imperfect).To(Equal(map[string]Verdict{"address-pools": Warns}))
		Expect(results).To(HaveLen(len(Checks())))
	})

	DescribeTable("find a problem, and name the remedy:", func(ctx context.Context, check string, verdict Verdict, detail, remedy string, change func()) {
		change()
		result := cluster.run(ctx)[check]
		Expect(result.Verdict).To(Equal(verdict), result.Detail)
		Expect(result.Detail).To(ContainSubstring(detail))
		Expect(result.Remedy).To(ContainSubstring(remedy))
	},
		Entry(nil, "permissions", Fails, "missing: pods (create), for user jane", "kubectl bosh check --as system:serviceaccount:bosh:bosh-cpi", func() { cluster.denied["create pods"] = true }),
		Entry(nil, "permissions-events", Fails, "events", "rbac.yaml", func() { cluster.denied["create events"] = true }),
		Entry(nil, "nodes", Fails, "0 of 1 nodes", "not cordoned", func() {
			memoryapi.Update(cluster.Server, "nodes", "", "node-1", &corev1.Node{}, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}),
		Entry(nil, "node-versions", Fails, "no image volumes on node-1 (kubelet v1.34.4, containerd://2.2.0)", "Kubernetes 1.35 or later", func() {
			cluster.setVersions("v1.34.4", "containerd://2.2.0")
		}),
		Entry(nil, "node-versions", Fails, "no image volumes on node-1", "containerd 2.1 or CRI-O 1.31", func() {
			cluster.setVersions("v1.35.0", "containerd://1.7.30")
		}),
		Entry(nil, "node-versions", Fails, "no image volumes on node-1", "or cordon them", func() {
			cluster.setVersions("v1.36.1", "cri-o://1.30.9")
		}),
		Entry(nil, "node-versions", Fails, "no image volumes on node-1", "containerd 2.1", func() {
			cluster.setVersions("v1.36.1", "docker://28.0.1")
		}),
		Entry(nil, "node-versions", OK, "1 nodes have image volumes", "", func() { cluster.setVersions("v1.36.0-gke.1", "cri-o://1.31.0") }),
		Entry(nil, "node-versions", Unknown, "unknown versions: node-1", "deep check node-image", func() { cluster.setVersions("kwok-v0.7", "") }),
		Entry(nil, "pod-slots", Warns, "capacity for 5 more Pods", "add nodes", func() {
			memoryapi.Update(cluster.Server, "nodes", "", "node-1", &corev1.Node{}, func(n *corev1.Node) {
				n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("5")
			})
		}),
		Entry(nil, "storage-classes", Fails, "no default StorageClass", "is-default-class=true", func() { cluster.defaultStorageClass = "" }),
		Entry(nil, "csi-driver", Unknown, "no default StorageClass", "see storage-classes", func() { cluster.defaultStorageClass = "" }),
		Entry(nil, "storage-classes", Warns, "no expansion", "allowVolumeExpansion: true", func() {
			memoryapi.Update(cluster.Server, "storageclasses", "", "fast", &storagev1.StorageClass{}, func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = nil })
		}),
		Entry(nil, "storage-classes", Fails, "StorageClass gone, which does not exist", "recreate it", func() {
			disk := manifest.Disk{Name: "disk-1", Namespace: namespace, Director: "d", StorageClass: "gone"}.PVC()
			cluster.Add("persistentvolumeclaims", namespace, disk.PVC)
		}),
		Entry(nil, "storage-classes", Fails, "VolumeAttributesClass gone, which does not exist", "use another class", func() {
			disk := manifest.Disk{Name: "disk-1", Namespace: namespace, Director: "d", AttributesClass: "gone"}.PVC()
			cluster.Add("persistentvolumeclaims", namespace, disk.PVC)
		}),
		Entry(nil, "csi-driver", Warns, "CSIDriver other", "no volume limits", func() {
			memoryapi.Update(cluster.Server, "storageclasses", "", "fast", &storagev1.StorageClass{}, func(c *storagev1.StorageClass) { c.Provisioner = "other" })
		}),
		Entry(nil, "snapshot-class", Fails, "no VolumeSnapshotClass of csi is the default", "annotate snap", func() {
			memoryapi.Update(cluster.Server, "volumesnapshotclasses", "", "snap", &extension.VolumeSnapshotClass{},
				func(c *extension.VolumeSnapshotClass) { c.Annotations = nil })
		}),
		Entry(nil, "attach-limits", Warns, "capacity for 2 more volumes", "higher volume limit", func() {
			memoryapi.Update(cluster.Server, "csinodes", "", "node-1", &storagev1.CSINode{}, func(n *storagev1.CSINode) {
				n.Spec.Drivers[0].Allocatable.Count = new(int32(2))
			})
		}),
		Entry(nil, "attach-limits", Unknown, "no node accepts VMs", "see nodes", func() {
			memoryapi.Update(cluster.Server, "nodes", "", "node-1", &corev1.Node{}, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}),
		Entry(nil, "quotas", Fails, "capacity for 0 more", "raise the ResourceQuota", func() {
			quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
			cluster.Add("resourcequotas", namespace, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
				Status: corev1.ResourceQuotaStatus{Hard: quota, Used: quota}})
		}),
		Entry(nil, "quotas", Fails, "q: 1 of 1 pods used, capacity for 0 more attachment Pods", "raise the ResourceQuota", func() {
			quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
			cluster.Add("resourcequotas", namespace, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
				Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
					{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{manifest.AttachmentPriorityClass}}}}},
				Status: corev1.ResourceQuotaStatus{Hard: quota, Used: quota}})
		}),
		Entry(nil, "quotas", OK, "q has scopes and is not evaluated", "", func() {
			cluster.Add("resourcequotas", namespace, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
				Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}}})
		}),
		Entry(nil, "limit-ranges", Warns, "VMs without cpu", "set cpu and memory", func() {
			cluster.Add("limitranges", namespace, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}},
			}})
		}),
		Entry(nil, "limit-ranges", Unknown, "access denied", "apply manifests/rbac-check.yaml", func() { cluster.deny("/limitranges") }),
		Entry(nil, "addresses", Fails, "kubernetes.network.address_annotations is empty", "use dynamic networks", func() {
			cluster.config.Network.AddressAnnotations = nil
		}),
		Entry(nil, "create-vm", Fails, "", "", func() {
			cluster.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				rejected := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
				if rejected {
					w.WriteHeader(http.StatusForbidden)
				}
				return rejected
			}
		}),
	)

	It("skip what depends on an API server that does not respond", func(ctx context.Context) {
		cluster.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		results := cluster.run(ctx)
		Expect(results[checkAPI].Verdict).To(Equal(Fails))
		Expect(results["nodes"]).To(And(HaveField("Verdict", Unknown), HaveField("Remedy", "see api")))
	})

	It("have one row for all skipped checks", func() {
		var table bytes.Buffer
		Expect(Write(&table, []Result{{Check: "api", Verdict: Fails, Detail: "no"}, {Check: "a", Detail: skipped}, {Check: "b", Detail: skipped}}, false)).To(Succeed())
		Expect(strings.Split(table.String(), "\n")[2:]).To(HaveExactElements(MatchRegexp(`^\(2 others\) +unknown +skipped, see api$`), ""))
	})

	It("are reported as a table or in JSON", func(ctx context.Context) {
		results := Run(ctx, cluster.config, cluster.client(), image)
		Expect(Passed(results)).To(BeTrue())
		var table, raw bytes.Buffer
		Expect(Write(&table, results, false)).To(Succeed())
		Expect(table.String()).To(ContainSubstring("1 of 1 nodes accept VMs"))
		Expect(Write(&raw, results, true)).To(Succeed())
		Expect(raw.String()).To(ContainSubstring(`"check": "nodes"`))
		Expect(Passed([]Result{{Kind: Required, Verdict: Fails}})).To(BeFalse())
	})

	Describe("of nodes", func() {
		run := func(ctx context.Context, probeImage string) map[string]Result {
			GinkgoHelper()
			results := map[string]Result{}
			for _, result := range RunDeep(ctx, cluster.config, cluster.client(), probeImage, nil) {
				results[result.Check] = result
			}
			return results
		}

		It("pass on a node that meets the requirements, and leave no Pod", func(ctx context.Context) {
			for _, result := range run(ctx, image) {
				Expect(result.Verdict).To(Equal(OK), "%s: %s", result.Check, result.Detail)
			}
			Expect(cluster.Names("pods")).To(BeEmpty())
			Expect(cluster.Names("services")).To(BeEmpty())
		})

		// loseFirstCreations loses the response to the first request that creates a Pod, and to the first that creates a Service, and calls lost each time.
		loseFirstCreations := func(lost func()) {
			created := map[string]bool{}
			cluster.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				resource := path.Base(r.URL.Path)
				if r.Method != http.MethodPost || r.URL.Query().Has("dryRun") || (resource != "pods" && resource != "services") || created[resource] {
					return false
				}
				created[resource] = true
				cluster.Handle(httptest.NewRecorder(), r)
				lost()
				panic(http.ErrAbortHandler)
			}
		}

		It("pass if the responses to the requests that create the Pod and the Service are lost", func(ctx context.Context) {
			var lost atomic.Int32
			loseFirstCreations(func() { lost.Add(1) })
			Expect(run(ctx, image)["run-vm"]).To(HaveField("Verdict", OK))
			Expect(lost.Load()).To(BeEquivalentTo(2))
			Expect(cluster.Names("pods")).To(BeEmpty())
		})

		It("leave no Pod if they are interrupted while the API server creates it", func(ctx context.Context) {
			interrupted, interrupt := context.WithCancel(ctx)
			loseFirstCreations(interrupt)
			run(interrupted, image)
			Expect(interrupted.Err()).To(HaveOccurred())
			Expect(cluster.Names("pods")).To(BeEmpty())
		})

		It("are unknown if no node has the labels of the node selector", func(ctx context.Context) {
			results := RunDeep(ctx, cluster.config, cluster.client(), image, map[string]string{"dedicated": "bosh"})
			Expect(results[0]).To(And(HaveField("Verdict", Unknown), HaveField("Detail", ContainSubstring("no node accepts VMs")),
				HaveField("Remedy", ContainSubstring("--node-selector"))))
		})

		DescribeTable("fail if the node does not run the image of bosh-node:", func(ctx context.Context, states []corev1.ContainerState, details ...string) {
			cluster.nodeImageStates = states
			results := run(ctx, image)
			Expect(results["node-image"].Verdict).To(Equal(Fails))
			for _, detail := range append(details, "on node-1: ", " [node-image-unavailable]") {
				Expect(results["node-image"].Detail).To(ContainSubstring(detail))
			}
			Expect(results["run-vm"].Verdict).To(Equal(Fails))
			Expect(cluster.Names("pods")).To(BeEmpty())
		},
			Entry("it mounts it empty", endedWith(128, `exec: "/bosh/bin/bosh-node": stat /bosh/bin/bosh-node: no such file or directory`), "mounts image volumes empty"),
			Entry("it mounts it without permission to execute", endedWith(128, `exec: "/bosh/bin/bosh-node": permission denied`), "does not execute programs"),
			Entry("it cannot pull it", failedPulls(`Failed to pull image "`+stemcells.NodeImageReference+`": manifest unknown`),
				"cannot pull image "+stemcells.NodeImageReference+" of bosh-node: ", "manifest unknown", "cpi -push-node-image"),
		)

		It("report that the program failed on the node, and not that the image is missing", func(ctx context.Context) {
			cluster.nodeImageStates = endedWith(1, `{"version": 1, "code": "cluster-error", "message": "open /dev/x: no such file or directory"}`)
			results := run(ctx, image)
			Expect(results["run-vm"]).To(And(HaveField("Verdict", Fails), HaveField("Detail", ContainSubstring("open /dev/x: no such file or directory"))))
			Expect(results["node-image"].Verdict).To(Equal(Unknown))
		})

		It("do not test an unknown image of bosh-node", func(ctx context.Context) {
			cluster.config.NodeImage = ""
			Expect(run(ctx, image)["node-image"]).To(And(HaveField("Verdict", Unknown), HaveField("Remedy", ContainSubstring("set --node-image"))))
		})

		It("use the image of bosh-node of an existing VM by default", func(ctx context.Context) {
			cluster.config.NodeImage = ""
			cluster.Add("pods", namespace, manifest.VM{Name: "agent-1", Namespace: namespace, Image: image, NodeImage: stemcells.NodeImageReference}.Pod().Pod)
			Expect(run(ctx, "")["node-image"]).To(HaveField("Verdict", OK))
		})

		It("fail if the image of bosh-node is damaged", func(ctx context.Context) {
			cluster.config.NodeImage, cluster.config.NodeImageLayout = "", "/nonexistent"
			Expect(run(ctx, image)["node-image"]).To(And(HaveField("Verdict", Fails), HaveField("Detail", ContainSubstring("/nonexistent"))))
		})

		It("need an image", func(ctx context.Context) {
			for _, result := range run(ctx, "") {
				Expect(result.Remedy).To(ContainSubstring("set --image"), result.Check)
			}
		})

		It("run only on nodes of an architecture of the stemcell", func(ctx context.Context) {
			memoryapi.Update(cluster.Server, "nodes", "", "node-1", &corev1.Node{}, func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelArchStable: "arm64"} })
			vm := manifest.VM{Name: "agent-1", Namespace: namespace, Image: image, Stemcell: image + "#amd64"}.Pod()
			cluster.Add("pods", namespace, vm.Pod)
			for _, result := range run(ctx, "") {
				Expect(result.Detail).To(Equal("no node accepts VMs"), result.Check)
			}
		})

		It("need a node", func(ctx context.Context) {
			memoryapi.Update(cluster.Server, "nodes", "", "node-1", &corev1.Node{}, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			for _, result := range run(ctx, image) {
				Expect(result.Detail).To(Equal("no node accepts VMs"), result.Check)
			}
		})
	})
})

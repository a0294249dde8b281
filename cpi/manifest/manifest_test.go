package manifest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

func TestManifest(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "manifest")
}

// expectGolden compares the complete object with testdata/NAME.yaml; UPDATE_GOLDEN=1 writes that file.
func expectGolden(name string, object any) {
	GinkgoHelper()
	raw, err := yaml.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join("testdata", name+".yaml")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		Expect(os.WriteFile(path, raw, 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(raw)).To(Equal(string(want)))
}

// nodeImage is the image of bosh-node.
const nodeImage = "registry/bosh-node@sha256:01"

func testVM() manifest.VM {
	return manifest.VM{
		Name: "agent-a1", Namespace: "bosh", Director: "d1", Digest: "digest",
		Stemcell: "registry/stemcell@sha256:00", Image: "registry/stemcell@sha256:00", NodeImage: nodeImage,
	}
}

func runningPod(vm manifest.VM) manifest.VMPod {
	pod := vm.Pod()
	pod.UID = "uid-of-the-vm"
	pod.Spec.NodeName = "node-1"
	return pod
}

var _ = Describe("A VM", func() {
	It("is by default a privileged Pod that is always restarted and has no token", func() {
		expectGolden("vm-plain", testVM().Pod().Pod)
	})

	It("has everything that its call requests", func() {
		vm := testVM()
		vm.Labels = map[string]string{"tier": "web", manifest.LabelRole: "ignored"}
		vm.Annotations = map[string]string{"cni.projectcalico.org/ipAddrs": `["10.0.0.1"]`}
		vm.Init = "/lib/systemd/systemd"
		vm.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		vm.SharedMemory = new(resource.MustParse("256Mi"))
		vm.EphemeralClaim = &corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast")}
		vm.NodeSelector = map[string]string{"zone": "a"}
		vm.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		vm.PriorityClass, vm.RuntimeClass, vm.ServiceAccount = "high", "kata", "director"
		vm.PullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		vm.HostUsers = new(false)
		vm.LXCFS = "/var/lib/lxcfs"
		vm.SecurityContext = &corev1.SecurityContext{Privileged: new(false)}
		vm.Group, vm.Budget = "d-cf-web", &manifest.DisruptionBudget{MaxUnavailable: new(int32(1))}
		vm.Services, vm.DrainSeconds = []manifest.Service{{Name: "web"}, {Name: "agent-a1"}}, 60
		expectGolden("vm-full", vm.Pod().Pod)
	})

	It("has the requested security profiles if it is not privileged", func() {
		vm := testVM()
		vm.SecurityContext = &corev1.SecurityContext{
			Privileged:      new(false),
			Capabilities:    &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
			SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("bosh-vm")},
		}
		expectGolden("vm-confined", vm.Pod().Pod)
	})

	It("is rebooted by a Pod that runs bosh-node, and nothing of the VM", func() {
		pod := runningPod(testVM())
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifest.VMContainer, ContainerID: "containerd://c1"}}
		expectGolden("reboot", manifest.RebootPod(pod, "d1", nodeImage).Pod)
	})

	It("is rebooted by a Pod without its PriorityClass, which preempts no other VM", func() {
		vm := testVM()
		vm.PriorityClass = "high"
		Expect(manifest.RebootPod(runningPod(vm), "d1", nodeImage).Spec.PriorityClassName).To(BeEmpty())
	})

	It("has a file with the record that it booted", func() {
		pod := testVM().Pod()
		Expect(pod.Spec.Volumes).To(ContainElement(HaveField("DownwardAPI.Items", ConsistOf(And(
			HaveField("Path", "booted"), HaveField("FieldRef.FieldPath", "metadata.annotations['"+manifest.AnnotationBooted+"']"))))))
		Expect(pod.Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{Name: "pod", MountPath: "/bosh/pod", ReadOnly: true}))
	})

	It("has a Pod like it for the deep check, which runs once without agent settings", func() {
		expectGolden("node-probe", manifest.NodeProbePod(testVM(), "node-1").Pod)
	})

	It("owns the Secret with its agent settings", func() {
		vm := testVM()
		expectGolden("settings", vm.SettingsSecret(map[string][]byte{"settings.json": []byte("{}")}, runningPod(vm)))
	})
})

var _ = Describe("A disk", func() {
	It("requests additional space for its image file with volumeMode Filesystem", func() {
		expectGolden("pvc-filesystem", manifest.Disk{
			Name: "disk-1", Namespace: "bosh", Director: "d1", SizeMiB: 1024, Mode: corev1.PersistentVolumeFilesystem,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Filesystem: "ext4",
		}.PVC())
	})

	It("passes preallocation on to its attachment Pod", func() {
		Expect(manifest.Disk{Name: "disk-1", Preallocate: true}.PVC().IsPreallocated()).To(BeTrue())
		attachment := manifest.Attachment{Disk: "disk-1", Preallocate: true, VM: runningPod(testVM())}.Pod()
		Expect(attachment.Spec.Containers[0].Command).To(ContainElement("--preallocate"))
	})

	It("has an attachment Pod with all arguments of bosh-node, which the admission policy permits", func() {
		command := manifest.Attachment{
			Disk: "disk-1", SizeMiB: 64, Filesystem: "xfs", Formatted: true, Preallocate: true, VM: runningPod(testVM()),
		}.Pod().Spec.Containers[0].Command
		passed, err := api.ParseDisk(command[2], command[3:])
		Expect(err).NotTo(HaveOccurred())
		for field, value := range reflect.ValueOf(passed).Fields() {
			Expect(value.IsZero()).To(BeFalse(), field.Name)
		}
		policy, err := os.ReadFile("../../manifests/admission-policy.yaml")
		Expect(err).NotTo(HaveOccurred())
		permitted := regexp.MustCompile(` --size-mib[^|']*`).FindString(string(policy))
		Expect(permitted).NotTo(BeEmpty())
		Expect(strings.Join(command, " ")).To(MatchRegexp(permitted + "$"))
	})

	It("requests its exact size with volumeMode Block", func() {
		expectGolden("pvc-block", manifest.Disk{
			Name: "disk-1", Namespace: "bosh", Director: "d1", SizeMiB: 1024, Mode: corev1.PersistentVolumeBlock, StorageClass: "fast", AttributesClass: "gold",
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Filesystem: "xfs",
			Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"},
		}.PVC())
	})

	It("is attached by a Pod that runs on the VM's node from the VM's image, and is owned by the VM Pod", func() {
		vm := testVM()
		vm.PriorityClass = "high"
		expectGolden("attachment-filesystem", manifest.Attachment{
			Disk: "disk-1", SizeMiB: 1024, Filesystem: "ext4", Mode: corev1.PersistentVolumeFilesystem, VM: runningPod(vm), Director: "d1",
			NodeImage: nodeImage,
		}.Pod().Pod)
	})

	It("is attached by a Pod with another PriorityClass if the configuration names one", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM()), PriorityClass: "other"}.Pod()
		Expect(attachment.Spec.PriorityClassName).To(Equal("other"))
	})

	It("is flushed by a Pod without the PriorityClass of its attachment Pod", func() {
		flush := manifest.FlushPod(manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod(), "d1", nodeImage)
		Expect(flush.Spec.PriorityClassName).To(BeEmpty())
		expectGolden("flush", flush.Pod)
	})

	It("is attached by a Pod that requests ephemeral storage only if the VM does: other nodes may report no capacity for it", func() {
		vm := testVM()
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(vm)}
		Expect(attachment.Pod().Spec.Containers[0].Resources.Requests).NotTo(HaveKey(corev1.ResourceEphemeralStorage))
		vm.Resources.Requests = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		attachment.VM = runningPod(vm)
		Expect(attachment.Pod().Spec.Containers[0].Resources.Requests).To(HaveKeyWithValue(corev1.ResourceEphemeralStorage, resource.MustParse("16Mi")))
	})

	It("is a device in the attachment Pod with volumeMode Block, and has a hook instead of a probe if a VM had it before", func() {
		expectGolden("attachment-block", manifest.Attachment{
			Disk: "disk-1", SizeMiB: 1024, Filesystem: "xfs", Formatted: true, Mode: corev1.PersistentVolumeBlock, VM: runningPod(testVM()), Director: "d1",
			NodeImage: nodeImage,
		}.Pod().Pod)
	})

	It("has an exclusivity check in a container that runs once, with a new name for each attempt", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod()
		attachment.Spec.EphemeralContainers = []corev1.EphemeralContainer{manifest.ExclusivityCheckContainer(attachment, nodeImage)}
		check := manifest.ExclusivityCheckContainer(attachment, nodeImage)
		Expect(check.Name).To(Equal("exclusivity-check-2"))
		Expect(manifest.IsExclusivityCheck(check.Name)).To(BeTrue())
	})

	It("has an exclusivity check with the CPI's program, and with the mounts of the attachment except that of its program", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM()), NodeImage: "registry/bosh-node@sha256:older"}.Pod()
		check := manifest.ExclusivityCheckContainer(attachment, nodeImage)
		Expect(check.Image).To(Equal(nodeImage))
		Expect(check.Command).To(HaveExactElements(api.InImage, "disk", "check", "--cid", "disk-1", "--vm", "bosh/agent-a1"))
		Expect(check.VolumeMounts).To(ConsistOf(
			corev1.VolumeMount{Name: "devices", MountPath: "/devices"}, corev1.VolumeMount{Name: "disk", MountPath: "/volume"},
			corev1.VolumeMount{Name: "markers", MountPath: "/markers"}))
		Expect(check.SecurityContext).To(Equal(attachment.Spec.Containers[0].SecurityContext))
		Expect(attachment.Spec.Containers[0].VolumeMounts).To(HaveLen(5), "the attachment itself is unchanged")
	})

	It("has an exclusivity check with the device of the attachment with volumeMode Block", func() {
		attachment := manifest.Attachment{Disk: "disk-1", Mode: corev1.PersistentVolumeBlock, VM: runningPod(testVM())}.Pod()
		check := manifest.ExclusivityCheckContainer(attachment, nodeImage)
		Expect(check.VolumeDevices).To(ConsistOf(corev1.VolumeDevice{Name: "disk", DevicePath: "/dev/volume"}))
		Expect(check.VolumeMounts).To(ConsistOf(HaveField("Name", "devices"), HaveField("Name", "markers")))
	})

	DescribeTable("has a volume for the marks of its attachment if the VM gets it while it runs", func(mode corev1.PersistentVolumeMode) {
		attachment := manifest.Attachment{Disk: "disk-1", Mode: mode, VM: runningPod(testVM())}.Pod()
		Expect(attachment.Spec.Volumes).To(ContainElement(And(HaveField("Name", "markers"), HaveField("EmptyDir", Not(BeNil())))))
		Expect(attachment.Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{Name: "markers", MountPath: "/markers"}))
	},
		Entry("with volumeMode Filesystem", corev1.PersistentVolumeFilesystem),
		Entry("with volumeMode Block", corev1.PersistentVolumeBlock),
	)
})

var _ = Describe("Names", func() {
	DescribeTable("of labels are derived from metadata keys:",
		func(key, name string, ok bool) {
			got, valid := manifest.LabelKey(key)
			Expect(got).To(Equal(name))
			Expect(valid).To(Equal(ok))
		},
		Entry("plain", "deployment", "bosh.cloudfoundry.org/deployment", true),
		Entry("with a space", "my tag", "bosh.cloudfoundry.org/my-tag", true),
		Entry("without any valid character", "ßß", "bosh.cloudfoundry.org/", false),
		Entry("too long", strings.Repeat("x", 64), "bosh.cloudfoundry.org/"+strings.Repeat("x", 64), false),
	)

	It("of VMs are valid object names, and short enough for label values", func() {
		Expect(manifest.ValidName(manifest.VMName("b9206f40-7abb-413d-9157-e797e8feb91b"))).To(BeTrue())
		Expect(manifest.ValidName("agent-UPPER")).To(BeFalse())
		Expect(manifest.ValidName("agent-" + strings.Repeat("x", 60))).To(BeFalse())
	})

	It("are reserved only if the CPI itself uses them", func() {
		Expect(manifest.IsReservedKey("tier")).To(BeFalse())
		Expect(manifest.IsReservedKey(manifest.Prefix+"job")).To(BeFalse(), "the director's metadata has it")
	})

	It("of owners are those of the Pod", func() {
		pod := runningPod(testVM())
		Expect(testVM().SettingsSecret(nil, pod).OwnerReferences).To(Equal([]metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "agent-a1", UID: "uid-of-the-vm"},
		}))
	})
})

var _ = Describe("The size of a PVC", func() {
	DescribeTable("has space for the disk and for the volume's filesystem:",
		func(disk int64, mode corev1.PersistentVolumeMode, pvcMiB int64) {
			Expect(manifest.PVCSizeMiB(disk, mode)).To(Equal(pvcMiB))
		},
		Entry("exact for a Block volume", int64(1000), corev1.PersistentVolumeBlock, int64(1000)),
		Entry("6% and 64 MiB more for a Filesystem volume", int64(1000), corev1.PersistentVolumeFilesystem, int64(1124)),
		Entry("rounded up", int64(1), corev1.PersistentVolumeFilesystem, int64(66)),
	)
})

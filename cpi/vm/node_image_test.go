package vm

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// failPulls lets nodes fail to pull an image for Pods of this role. The kubelet reports each attempt with this message.
func (env *testEnv) failPulls(role, message string, attempts int) {
	simulate := env.api.Simulate
	env.api.Simulate = func(obj *object) bool {
		scheduled := memoryapi.StartPods(node)(obj.DeepCopy())
		if !simulate(obj) {
			return false
		}
		if scheduled && obj.GetLabels()[manifest.LabelRole] == role {
			var pod corev1.Pod
			memoryapi.FromObject(obj, &pod)
			waitForImage(&pod, "ContainerCreating", "")
			obj.Object = memoryapi.ToObject(&pod).Object
			go env.failPull(pod.Name, message, attempts)
		}
		return true
	}
}

// failPull reports failed attempts to pull an image for the Pod.
func (env *testEnv) failPull(pod, message string, attempts int) {
	defer GinkgoRecover()
	for range attempts {
		env.updatePod(pod, func(pod *corev1.Pod) { waitForImage(pod, "ImagePullBackOff", message) })
		env.updatePod(pod, func(pod *corev1.Pod) { waitForImage(pod, "ErrImagePull", message) })
	}
}

func waitForImage(pod *corev1.Pod, reason, message string) {
	pod.Status.Phase, pod.Status.Conditions = corev1.PodPending, nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: manifest.OwnContainerName(pod), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}
}

var _ = Describe("The image of bosh-node", func() {
	const (
		failed    = `Failed to pull image "` + stemcells.NodeImageReference + `": rpc error: `
		missing   = failed + "code = NotFound desc = manifest unknown"
		noContact = failed + "dial tcp: connection refused"
	)
	var env *testEnv
	BeforeEach(func() { env = newTestEnv() })

	reportUnavailable := func(message string) OmegaMatcher {
		return And(haveCode(call.CodeNodeImageUnavailable), MatchError(And(
			ContainSubstring("cannot pull image "+stemcells.NodeImageReference+" of bosh-node: "), ContainSubstring(message),
			ContainSubstring("bin/cpi -push-node-image"))))
	}

	It("is pushed to the registry for heavy stemcells before a Pod needs it", func() {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		env.NodeImage.Configured = ""
		env.NodeImage.Registry = stemcell.Registry{Repository: registry.Host() + "/bosh/stemcells", Insecure: true}
		env.NodeImage.Log = env.Log
		var digest string
		env.NodeImage.Layout, digest = stemcells.NodeImage(GinkgoT().TempDir(), "ghcr.test/bosh-node")
		vm := env.createVM(`{}`)
		Expect(registry.Requests()).To(ContainElement("PUT /v2/bosh/stemcells/manifests/" + digest))
		disk := env.createDisk(`{}`)
		env.NodeImage.Registry.Repository = registry.Host() + "/bosh/other" // as after a change of the configuration
		_, err := env.Attach(vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(registry.Requests()).To(ContainElement("PUT /v2/bosh/other/manifests/" + digest))
	})

	It("fails a create_vm at the second failed pull, with the remedy", func() {
		env.failPulls(manifest.RoleVM, missing, 2)
		_, err := env.Create(request("one", `{}`))
		Expect(err).To(reportUnavailable("manifest unknown"))
		Expect(call.AsBOSHError(err).Type()).To(BeEquivalentTo(call.VMCreationFailed))
		Expect(env.objects()).To(BeEmpty())
	})

	It("fails an attach_disk at the second failed pull, with the remedy", func() {
		vm, disk := env.createVM(`{}`), env.createDisk(`{}`)
		env.failPulls(manifest.RoleAttachment, missing, 2)
		_, err := env.Attach(vm, disk)
		Expect(err).To(reportUnavailable("manifest unknown"))
		Expect(env.objects()).NotTo(ContainElement(attachmentOf(disk)))
	})

	It("fails a reboot_vm at the second failed pull, with the remedy", func() {
		vm := env.createVM(`{}`)
		env.api.Simulate = memoryapi.StartPods(node)
		env.failPulls(manifest.RoleReboot, missing, 2)
		Expect(env.Reboot(vm)).To(reportUnavailable("manifest unknown"))
	})

	It("is waited for during an outage of its registry, which is the cause of a timeout", func() {
		vm, disk := env.createVM(`{}`), env.createDisk(`{}`)
		memoryapi.InVirtualTime(suite, func() {
			env.failPulls(manifest.RoleAttachment, noContact, 4)
			env.Session = env.newSession(time.Hour)
			_, err := env.Attach(vm, disk)
			Expect(err).To(reportUnavailable("connection refused"))

			env.failPulls(manifest.RoleVM, noContact, 4)
			env.Session = env.newSession(time.Hour)
			_, err = env.Create(request("two", `{}`))
			Expect(err).To(reportUnavailable("connection refused"))
			Expect(call.AsBOSHError(err).CanRetry()).To(BeTrue())
		})
	})

	It("is not the cause if the node cannot pull the image of the stemcell", func() {
		env.failPulls(manifest.RoleVM, `Failed to pull image "`+stemcellCID+`": manifest unknown`, 2)
		_, err := env.Create(request("one", `{}`))
		Expect(err).To(And(haveCode(call.CodeVMStartFailed), MatchError(ContainSubstring(stemcellCID))))
	})

	It("has a code if it is unknown, before anything is created", func() {
		env.NodeImage.Configured = ""
		_, err := env.Create(request("one", `{}`))
		Expect(err).To(And(haveCode(call.CodeNodeImageUnavailable), MatchError(ContainSubstring("set kubernetes.node_image"))))
		Expect(env.objects()).To(BeEmpty())
	})

	It("can be pulled for a VM that was created before the pull Secret was configured", func() {
		vm, disk := env.createVM(`{}`), env.createDisk(`{}`)
		registry, _, _ := strings.Cut(stemcells.NodeImageReference, "@")
		env.NodeImage.Registry = stemcell.Registry{Repository: registry, Username: "u", Password: "p", PullSecret: stemcell.PullSecret{Name: "pull"}}
		_, err := env.Attach(vm, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.pod(manifest.AttachmentName(disk)).Spec.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "pull"}))
		Expect(env.objects()).To(ContainElement("secrets/pull"))
	})

	It("is the CPI's in an exclusivity check, also after the attachment was created with another", func() {
		vm, disk := env.createVM(`{}`), env.createDisk(`{}`)
		_, err := env.Attach(vm, disk)
		Expect(err).NotTo(HaveOccurred())
		env.NodeImage.Configured = strings.Replace(stemcells.NodeImageReference, "abcdef", "fedcba", 1)
		env.check.findInUse()
		Expect(env.Detach(vm, disk)).To(haveCode(call.CodeDiskInUse))
		pod := env.pod(manifest.AttachmentName(disk))
		Expect(pod.Spec.EphemeralContainers).To(ConsistOf(HaveField("Image", env.NodeImage.Configured)))
		Expect(manifest.NodeImage(pod)).To(Equal(stemcells.NodeImageReference))
	})
})

var _ = Describe("The result of bosh-node", func() {
	var env *testEnv
	var vm, disk string
	BeforeEach(func() {
		env = newTestEnv()
		vm, disk = env.createVM(`{}`), env.createDisk(`{}`)
	})

	It("is the error of attach_disk, with the code closest to the cause", func() {
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool {
			changed := simulate(obj)
			if changed && obj.GetLabels()[manifest.LabelRole] == manifest.RoleAttachment {
				var pod corev1.Pod
				memoryapi.FromObject(obj, &pod)
				pod.Status.Conditions = nil
				pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: api.ExitFailed, Message: encodeResult(api.Result{Code: "volume-not-blank", Message: "the volume of disk " + disk + " has other content"}),
				}}
				obj.Object = memoryapi.ToObject(&pod).Object
			}
			return changed
		}
		_, err := env.newSession(time.Minute).Attach(vm, disk)
		Expect(call.AsBOSHError(err).WithCode()).To(MatchError(
			"cannot attach disk " + disk + ": the volume of disk " + disk + " has other content [volume-not-blank]"))
	})
})

var _ = Describe("The record that a VM has booted", func() {
	It("is set by create_vm", func() {
		env := newTestEnv()
		Expect(env.pod(env.createVM(`{}`)).Annotations).To(HaveKeyWithValue(manifest.AnnotationBooted, "true"))
	})

	It("is set by create_vm if the VM does not keep its address", func() {
		env := newTestEnv()
		env.Network.KeepDynamicAddresses = false
		Expect(env.pod(env.createVM(`{}`)).Annotations).To(HaveKeyWithValue(manifest.AnnotationBooted, "true"))
	})

	It("is not set if the VM did not boot", func() {
		env := newTestEnv()
		var booted []bool
		simulate := env.api.Simulate
		env.api.Simulate = func(obj *object) bool {
			if obj.GetKind() == "Pod" {
				_, set := obj.GetAnnotations()[manifest.AnnotationBooted]
				booted = append(booted, set)
			}
			return simulate(obj)
		}
		env.startVM = func(s *corev1.PodStatus) { s.ContainerStatuses[0].Started = new(false) }
		memoryapi.InVirtualTime(suite, func() {
			env.Session = env.newSession(time.Hour)
			_, err := env.Create(request("one", `{}`))
			Expect(err).To(haveCode(call.CodeVMStartTimeout))
		})
		Expect(booted).To(And(Not(BeEmpty()), HaveEach(BeFalse())))
	})

	It("is not set with disk_strategy: recreate, because the next Pod has the same ephemeral disk", func() {
		env := newTestEnv()
		Expect(env.pod(env.createVM(recreate)).Annotations).NotTo(HaveKey(manifest.AnnotationBooted))
	})
})

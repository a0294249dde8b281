package vm

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The PodTemplate of a VM with disk_strategy: recreate", func() {
	var env *testEnv
	var vm, other, cid string
	BeforeEach(func() {
		env = newTestEnv()
		vm, cid = env.createVM(recreate), env.createDisk(`{"volume_mode": "Block"}`)
		var err error
		other, err = env.Create(request("two", recreate))
		Expect(err).NotTo(HaveOccurred())
	})

	attach := func(vm string) {
		GinkgoHelper()
		_, err := env.newSession(time.Minute).Attach(vm, cid)
		Expect(err).NotTo(HaveOccurred())
	}
	detach := func(vm string) {
		GinkgoHelper()
		Expect(env.newSession(time.Minute).Detach(vm, cid)).To(Succeed())
	}
	template := func() *corev1.PodTemplate {
		GinkgoHelper()
		var template corev1.PodTemplate
		env.api.Get("podtemplates", namespace, vm, &template)
		return &template
	}
	disks := func() []string { return manifest.DiskCIDs(template().Template.Spec) }

	// interceptPatch calls handle with the first request to change the PodTemplate.
	interceptPatch := func(handle func(http.ResponseWriter, *http.Request) (handled bool)) {
		intercepted := false
		env.api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if intercepted || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/podtemplates/"+vm) {
				return false
			}
			intercepted = true
			return handle(w, r)
		}
	}

	// killAtPatch makes a call that is killed when it has sent its request to change the PodTemplate. The request does not arrive
	// until deliver, which returns the status of the response.
	killAtPatch := func(method func(*Session) error) (deliver func() int) {
		GinkgoHelper()
		killed := env.newSession(time.Minute)
		ctx, kill := context.WithCancel(killed.Ctx)
		killed.Ctx = ctx
		var late *http.Request
		interceptPatch(func(_ http.ResponseWriter, r *http.Request) bool {
			body, err := io.ReadAll(r.Body)
			Expect(err).NotTo(HaveOccurred())
			late = r.Clone(context.Background())
			late.Body = io.NopCloser(bytes.NewReader(body))
			kill()
			return true
		})
		Expect(method(killed)).NotTo(Succeed())
		Expect(late).NotTo(BeNil())
		return func() int {
			response := httptest.NewRecorder()
			env.api.Handle(response, late)
			return response.Code
		}
	}

	It("does not get a disk by a late attach_disk after the disk was attached to another VM", func() {
		deliver := killAtPatch(func(s *Session) error { _, err := s.Attach(vm, cid); return err })
		detach(vm)
		attach(other)
		Expect(deliver()).To(Equal(http.StatusConflict))
		Expect(disks()).To(BeEmpty())
	})

	It("does not lose a disk by a late detach_disk after an attach_disk found the disk attached", func() {
		attach(vm)
		deliver := killAtPatch(func(s *Session) error { return s.Detach(vm, cid) })
		attach(vm)
		Expect(deliver()).To(Equal(http.StatusConflict))
		Expect(disks()).To(ConsistOf(cid))
	})

	It("does not get earlier metadata by a late set_vm_metadata", func() {
		deliver := killAtPatch(func(s *Session) error { return s.SetMetadata(vm, map[string]any{"job": "first"}) })
		Expect(env.SetMetadata(vm, map[string]any{"job": "second"})).To(Succeed())
		Expect(deliver()).To(Equal(http.StatusConflict))
		Expect(template().Template.Labels).To(HaveKeyWithValue(manifest.Prefix+"job", "second"))
	})

	It("does not get a disk that was detached while attach_disk changed it", func() {
		interceptPatch(func(http.ResponseWriter, *http.Request) bool { detach(vm); return false })
		_, err := env.Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskBusy))
		Expect(disks()).To(BeEmpty())
	})

	It("gets a disk although another client deletes its attachment Pod while attach_disk changes it", func() {
		interceptPatch(func(http.ResponseWriter, *http.Request) bool {
			env.deletePod(manifest.AttachmentName(cid))
			return false
		})
		attach(vm)
		Expect(disks()).To(Equal([]string{cid}))
		attachment := manifest.AttachmentPod{Pod: env.pod(manifest.AttachmentName(cid))}
		Expect(attachment.IsGated()).To(BeFalse())
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(Equal(attachment.OwnerRecord()))
	})

	It("keeps a disk that was attached again while detach_disk changed it", func() {
		attach(vm)
		interceptPatch(func(http.ResponseWriter, *http.Request) bool { detach(vm); attach(vm); return false })
		Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskBusy))
		Expect(disks()).To(ConsistOf(cid))
	})

	It("keeps a disk that was attached again before detach_disk deletes its attachment Pod", func() {
		attach(vm)
		attached := false
		env.api.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/pods/"+manifest.AttachmentName(cid)) && !attached {
				attached = true
				attach(vm)
			}
			return false
		}
		Expect(env.newSession(time.Minute).Detach(vm, cid)).To(haveCode(call.CodeDiskBusy))
		Expect(attached).To(BeTrue())
		Expect(manifest.DiskCIDs(env.pod(vm).Spec)).To(Equal([]string{cid}))
		owner, _ := env.pvc(cid).Owner()
		Expect(owner).To(Equal(manifest.DiskOwner{VM: vm, Pod: env.pod(manifest.AttachmentName(cid)).UID}))
	})

	It("does not get a disk of which detach_disk will delete the attachment Pod", func() {
		attach(vm)
		interceptPatch(func(http.ResponseWriter, *http.Request) bool {
			detaching := recreateStrategy{s: env.newSession(time.Minute)}
			Expect(detaching.adoptAttachment(manifest.AttachmentPod{Pod: env.pod(manifest.AttachmentName(cid))})).To(Succeed())
			_, err := detaching.changeTemplate(vm, func(*corev1.PodTemplate) (manifest.TemplateChange, error) {
				return manifest.TemplateChange{RemoveDisk: cid}, nil
			})
			Expect(err).NotTo(HaveOccurred())
			return false
		})
		_, err := env.newSession(time.Minute).Attach(vm, cid)
		Expect(err).To(haveCode(call.CodeDiskBusy))
		Expect(disks()).To(BeEmpty())
	})

	It("keeps the metadata that another client set while set_vm_metadata changed it", func() {
		interceptPatch(func(http.ResponseWriter, *http.Request) bool {
			Expect(env.newSession(time.Minute).SetMetadata(vm, map[string]any{"name": "web/1"})).To(Succeed())
			return false
		})
		Expect(env.SetMetadata(vm, map[string]any{"job": "web"})).To(Succeed())
		Expect(template().Template.Annotations).To(And(HaveKeyWithValue(manifest.Prefix+"job", "web"), HaveKeyWithValue(manifest.Prefix+"name", "web/1")))
	})

	It("gets the disk although the retried request finds its own change", func() {
		interceptPatch(func(_ http.ResponseWriter, r *http.Request) bool {
			body, err := io.ReadAll(r.Body)
			Expect(err).NotTo(HaveOccurred())
			first := r.Clone(r.Context())
			first.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			env.api.Handle(httptest.NewRecorder(), first)
			return false
		})
		attach(vm)
		Expect(disks()).To(ConsistOf(cid))
	})

	It("loses a disk of another VM when the VM Pod is created again", func() {
		attach(other)
		_, err := recreateStrategy{s: env.Session}.changeTemplate(vm, func(*corev1.PodTemplate) (manifest.TemplateChange, error) {
			return manifest.TemplateChange{AddDisk: env.pvc(cid)}, nil
		})
		Expect(err).NotTo(HaveOccurred())
		env.deletePod(vm)
		Expect(env.Has(vm)).To(BeTrue())
		Expect(env.Detach(vm, cid)).To(haveCode(call.CodeDiskNotAttached))
		Expect(disks()).To(BeEmpty())
		Expect(env.GetDisks(other)).To(ConsistOf(cid))
	})
})

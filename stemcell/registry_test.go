package stemcell_test

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func cancelableContext(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }

var _ = Describe("Pushing to a failing registry", func() {
	var registry *stemcells.Registry
	BeforeEach(func() { registry = startRegistry(false) })

	push := func(ctx context.Context) error {
		store, _ := newStore(registry)
		_, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		return err
	}

	It("is retried if the connection is lost during an upload", func(ctx SpecContext) {
		registry.SetFault(stemcells.BreakUploads(2))
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(HaveEach(1))
	})

	It("fails if the connection is lost repeatedly, and can be retried", func(ctx SpecContext) {
		registry.SetFault(stemcells.BreakUploads(1000))
		Expect(push(ctx)).To(MatchError(And(
			ContainSubstring("the connection to registry "+registry.Host()+" was lost repeatedly"),
			ContainSubstring("check the network, proxies and the registry's log"),
		)))
		Expect(registry.CountManifests()).To(BeZero())
		registry.SetFault(nil)
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(HaveEach(1))
	})

	It("does not upload the layer again if only the manifest failed", func(ctx SpecContext) {
		rejectManifest := func(w http.ResponseWriter, request *http.Request) bool {
			return strings.Contains(request.URL.Path, "/manifests/") &&
				stemcells.RejectMethod(http.MethodPut, http.StatusInternalServerError, "UNKNOWN")(w, request)
		}
		registry.SetFault(rejectManifest)
		Expect(push(ctx)).To(MatchError(ContainSubstring("Internal Server Error")))
		registry.SetFault(nil)
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveEach(1)))
	})

	DescribeTable("fails with a specific error and a remedy", func(
		ctx SpecContext, method string, status int, code string, kind error, message string,
	) {
		registry.SetFault(stemcells.RejectMethod(method, status, code))
		err := push(ctx)
		Expect(err).To(MatchError(kind))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(err).To(MatchError(ContainSubstring(registry.Host())))
		Expect(registry.CountManifests()).To(BeZero())
	},
		Entry("rejected credentials", http.MethodPost, 401, "UNAUTHORIZED", stemcell.ErrDenied,
			"check kubernetes.stemcell.registry.username and password"),
		Entry("missing permissions", http.MethodPost, 403, "DENIED", stemcell.ErrDenied, "permission to pull, push and delete in that repository"),
		Entry("unknown repository", http.MethodPost, 404, "NAME_UNKNOWN", stemcell.ErrNotFound, "no such image or repository"),
		Entry("full during the upload", http.MethodPatch, 507, "UNKNOWN", stemcell.ErrFull, "is full; free space there"),
		Entry("full at the end of the upload", http.MethodPut, 507, "UNKNOWN", stemcell.ErrFull, "is full; free space there"),
		Entry("size limit of a proxy", http.MethodPatch, 413, "SIZE_INVALID", stemcell.ErrFull, "client_max_body_size"),
	)

	It("fails with ErrFull if the registry reports that its disk is full", func(ctx SpecContext) {
		registry.SetFault(func(w http.ResponseWriter, request *http.Request) bool {
			if request.Method != http.MethodPatch {
				return false
			}
			stemcells.WriteError(w, http.StatusInternalServerError, "UNKNOWN", "write /var/lib/registry/data: no space left on device")
			return true
		})
		Expect(push(ctx)).To(MatchError(stemcell.ErrFull))
	})

	It("fails if the registry is unreachable", func(ctx SpecContext) {
		registry.Close()
		Expect(push(ctx)).To(MatchError(And(ContainSubstring("cannot connect to registry "+registry.Host()), ContainSubstring("check its address, the network and proxies"))))
	})
})

var _ = Describe("Authentication between the CPI and a registry", func() {
	push := func(ctx context.Context, registry *stemcells.Registry, changes ...func(*stemcell.Registry)) error {
		store, _ := newStore(registry, changes...)
		_, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		return err
	}
	requireTLS := func(r *stemcell.Registry) { r.Insecure = false }

	It("accepts a certificate from the configured authority", func(ctx SpecContext) {
		registry := startRegistry(true)
		trustCA := func(r *stemcell.Registry) { r.Insecure, r.CA = false, registry.CA() }
		Expect(push(ctx, registry, trustCA)).To(Succeed())
	})

	It("rejects a certificate from an unknown authority", func(ctx SpecContext) {
		registry := startRegistry(true)
		err := push(ctx, registry, requireTLS)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		Expect(err).To(MatchError(ContainSubstring("set kubernetes.stemcell.registry.ca")))
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("sends no credentials over plain HTTP, not even on a private network", func(ctx SpecContext) {
		registry := startRegistry(false)
		err := push(ctx, registry, requireTLS)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		Expect(err).To(MatchError(ContainSubstring("kubernetes.stemcell.registry.insecure")))
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("uses a username and a password", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password = "bosh", "sesame"
		Expect(push(ctx, registry)).To(Succeed())
		wrongPassword := func(r *stemcell.Registry) { r.Password = "wrong" }
		err := push(ctx, registry, wrongPassword)
		Expect(err).To(MatchError(stemcell.ErrDenied))
		Expect(err.Error()).NotTo(ContainSubstring("wrong"))
	})

	It("gets a token from the registry's token server", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password, registry.Token = "bosh", "sesame", "t0ken"
		Expect(push(ctx, registry)).To(Succeed())
		Expect(registry.Requests()).To(ContainElement("GET /token"))
		wrongPassword := func(r *stemcell.Registry) { r.Password = "wrong" }
		Expect(push(ctx, registry, wrongPassword)).To(MatchError(stemcell.ErrDenied))
	})

	It("uses a configured token", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password, registry.Token = "bosh", "sesame", "t0ken"
		useToken := func(r *stemcell.Registry) { r.Username, r.Password, r.Token = "", "", "t0ken" }
		Expect(push(ctx, registry, useToken)).To(Succeed())
	})
})

var _ = Describe("Deleting a stemcell", func() {
	It("deletes the image of a heavy stemcell, and succeeds if it does not exist", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		path := writeTempFile(stemcells.Jammy.Image())
		cid, err := store.Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(store.Delete(ctx, cid)).To(Succeed())
		_, digest, _ := strings.Cut(cid, "@")
		response, err := http.Get("http://" + registry.Host() + "/v2/bosh/stemcells/manifests/" + digest)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusNotFound))
		Expect(store.Delete(ctx, cid)).To(Succeed())

		Expect(store.Push(ctx, path, jammy, nil)).To(Equal(cid))
		pullImage(cid)
	})

	// Like Google's registries: https://github.com/genuinetools/reg/issues/136.
	It("deletes the tag first if the registry requires it", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		cid, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		tagged := true
		registry.SetFault(func(w http.ResponseWriter, request *http.Request) bool {
			_, reference, _ := strings.Cut(request.URL.Path, "/manifests/")
			switch {
			case request.Method != http.MethodDelete:
			case !strings.HasPrefix(reference, "sha256:"):
				tagged = false
			case tagged:
				stemcells.WriteError(w, http.StatusBadRequest, "GOOGLE_MANIFEST_DANGLING_TAG", "Manifest is still referenced by tag")
				return true
			}
			return false
		})
		Expect(store.Delete(ctx, cid)).To(Succeed())
		_, reference, _ := strings.Cut(cid, "@")
		digest, _, _ := strings.Cut(reference, "#")
		response, err := http.Get("http://" + registry.Host() + "/v2/bosh/stemcells/manifests/" + digest)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusNotFound))
	})

	It("sends no requests for a light stemcell", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		Expect(store.Delete(ctx, registry.Host()+"/bosh/stemcells@"+digestOf(nil))).To(Succeed())
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("fails if the registry does not allow deletion", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		registry.SetFault(stemcells.RejectMethod(http.MethodDelete, http.StatusMethodNotAllowed, "UNSUPPORTED"))
		err := store.Delete(ctx, "heavy://"+registry.Host()+"/bosh/stemcells@"+digestOf(nil))
		Expect(err).To(MatchError(stemcell.ErrDeleteUnsupported))
		Expect(err).To(MatchError(ContainSubstring("REGISTRY_STORAGE_DELETE_ENABLED")))
	})

	It("fails with another error if the registry does not allow uploads", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		registry.SetFault(stemcells.RejectMethod(http.MethodPost, http.StatusMethodNotAllowed, "UNSUPPORTED"))
		_, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrDenied))
		Expect(err).To(MatchError(ContainSubstring("rejects changes")))
	})

	It("fails for an image in another repository than the configured one", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		err := store.Delete(ctx, "heavy://"+registry.Host()+"/other@"+digestOf(nil))
		Expect(err).To(MatchError(ContainSubstring("restore the setting, or delete image")))
		Expect(registry.Requests()).To(BeEmpty())
	})
})

package stemcell_test

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
)

func cancelableContext(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }

var _ = Describe("A registry in trouble", func() {
	var registry *stemcells.Registry
	BeforeEach(func() { registry = startRegistry(false) })

	push := func(ctx context.Context) error {
		store, _ := newStore(registry)
		_, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		return err
	}

	It("is tried again when the connection breaks in the middle of an upload", func(ctx SpecContext) {
		registry.SetFault(stemcells.BreakUploads(2))
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(HaveEach(1))
	})

	It("is given up when it goes on breaking, and a repeated push finds nothing in its way", func(ctx SpecContext) {
		registry.SetFault(stemcells.BreakUploads(1000))
		Expect(push(ctx)).To(MatchError(And(ContainSubstring(registry.Host()+" breaks off"), ContainSubstring("check the network and the proxies between"))))
		Expect(registry.CountManifests()).To(BeZero())
		registry.SetFault(nil)
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(HaveEach(1))
	})

	It("sends no layer again when only the manifest was missing", func(ctx SpecContext) {
		manifest := func(w http.ResponseWriter, request *http.Request) bool {
			return strings.Contains(request.URL.Path, "/manifests/") &&
				stemcells.RejectMethod(http.MethodPut, http.StatusInternalServerError, "UNKNOWN")(w, request)
		}
		registry.SetFault(manifest)
		Expect(push(ctx)).To(MatchError(ContainSubstring("Internal Server Error")))
		registry.SetFault(nil)
		Expect(push(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveEach(1)))
	})

	DescribeTable("is explained", func(ctx SpecContext, method string, status int, code string, kind error, message string) {
		registry.SetFault(stemcells.RejectMethod(method, status, code))
		err := push(ctx)
		Expect(err).To(MatchError(kind))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(err).To(MatchError(ContainSubstring(registry.Host())))
		Expect(registry.CountManifests()).To(BeZero())
	},
		Entry("not known", http.MethodPost, 401, "UNAUTHORIZED", stemcell.ErrDenied, "check stemcell.registry.username and password"),
		Entry("not allowed", http.MethodPost, 403, "DENIED", stemcell.ErrDenied, "the right to pull, push and delete"),
		Entry("no such project", http.MethodPost, 404, "NAME_UNKNOWN", stemcell.ErrNotFound, "no such image or repository"),
		Entry("full", http.MethodPatch, 507, "UNKNOWN", stemcell.ErrFull, "is full: free space there"),
		Entry("full at the end", http.MethodPut, 507, "UNKNOWN", stemcell.ErrFull, "is full: free space there"),
		Entry("too small a proxy", http.MethodPatch, 413, "SIZE_INVALID", stemcell.ErrFull, "client_max_body_size"),
	)

	It("is said to be full when its disk is", func(ctx SpecContext) {
		registry.SetFault(func(w http.ResponseWriter, request *http.Request) bool {
			if request.Method != http.MethodPatch {
				return false
			}
			stemcells.WriteError(w, http.StatusInternalServerError, "UNKNOWN", "write /var/lib/registry/data: no space left on device")
			return true
		})
		Expect(push(ctx)).To(MatchError(stemcell.ErrFull))
	})

	It("that is not there is said not to answer", func(ctx SpecContext) {
		registry.Close()
		Expect(push(ctx)).To(MatchError(ContainSubstring("does not answer as one (check its address and the network between)")))
	})
})

var _ = Describe("A registry's identity", func() {
	push := func(ctx context.Context, registry *stemcells.Registry, change ...func(*stemcell.Registry)) error {
		store, _ := newStore(registry, change...)
		_, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		return err
	}
	secure := func(r *stemcell.Registry) { r.Insecure = false }

	It("is checked against the configured authority", func(ctx SpecContext) {
		registry := startRegistry(true)
		trusted := func(r *stemcell.Registry) { r.Insecure, r.CA = false, registry.CA() }
		Expect(push(ctx, registry, trusted)).To(Succeed())
	})

	It("is not accepted without the authority", func(ctx SpecContext) {
		registry := startRegistry(true)
		err := push(ctx, registry, secure)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		Expect(err).To(MatchError(ContainSubstring("set stemcell.registry.ca")))
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("is asked for: credentials are never sent in the clear, not even on a private network", func(ctx SpecContext) {
		registry := startRegistry(false)
		err := push(ctx, registry, secure)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		Expect(err).To(MatchError(ContainSubstring("stemcell.registry.insecure")))
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("asks for a name and a password", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password = "bosh", "sesame"
		Expect(push(ctx, registry)).To(Succeed())
		wrong := func(r *stemcell.Registry) { r.Password = "wrong" }
		err := push(ctx, registry, wrong)
		Expect(err).To(MatchError(stemcell.ErrDenied))
		Expect(err.Error()).NotTo(ContainSubstring("wrong"))
	})

	It("asks for a token of its token server", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password, registry.Token = "bosh", "sesame", "t0ken"
		Expect(push(ctx, registry)).To(Succeed())
		Expect(registry.Requests()).To(ContainElement("GET /token"))
		wrong := func(r *stemcell.Registry) { r.Password = "wrong" }
		Expect(push(ctx, registry, wrong)).To(MatchError(stemcell.ErrDenied))
	})

	It("takes a token that the operator has", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password, registry.Token = "bosh", "sesame", "t0ken"
		own := func(r *stemcell.Registry) { r.Username, r.Password, r.Token = "", "", "t0ken" }
		Expect(push(ctx, registry, own)).To(Succeed())
	})
})

var _ = Describe("Deleting a stemcell", func() {
	It("removes a heavy one's image, once and again", func(ctx SpecContext) {
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

		again, err := store.Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(cid))
		pullImage(cid)
	})

	It("never asks a light one's registry", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		Expect(store.Delete(ctx, registry.Host()+"/bosh/stemcells@"+digestOf(nil))).To(Succeed())
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("says that the registry deletes nothing", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		registry.SetFault(stemcells.RejectMethod(http.MethodDelete, http.StatusMethodNotAllowed, "UNSUPPORTED"))
		err := store.Delete(ctx, "heavy://"+registry.Host()+"/bosh/stemcells@"+digestOf(nil))
		Expect(err).To(MatchError(stemcell.ErrUndeletable))
		Expect(err).To(MatchError(ContainSubstring("REGISTRY_STORAGE_DELETE_ENABLED")))
	})

	It("touches no repository but the configured one", func(ctx SpecContext) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		err := store.Delete(ctx, "heavy://"+registry.Host()+"/other@"+digestOf(nil))
		Expect(err).To(MatchError(ContainSubstring("set it back, or delete the image")))
		Expect(registry.Requests()).To(BeEmpty())
	})
})

package stemcell_test

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/authority"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// scripts/test installs Debian's registry if possible. Without it, these specs are omitted.
var _ = func() bool {
	if _, err := exec.LookPath(stemcells.DebianProgram); err == nil {
		Describe("Debian's docker-registry with TLS and basic authentication", debianRegistry)
	}
	return true
}()

// startDebian starts the registry, and stops it at the end of the spec.
func startDebian(ctx SpecContext, allowDeletion bool) *stemcells.DebianRegistry {
	GinkgoHelper()
	registry, err := stemcells.StartDebianRegistry(ctx, GinkgoT().TempDir(), allowDeletion)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(registry.Close)
	return registry
}

func newDebianStore(registry *stemcells.DebianRegistry, changes ...func(*stemcell.Registry)) stemcell.Store {
	store, _ := newStoreWith(stemcell.Registry{
		Repository: registry.Host() + "/bosh/stemcells", CA: registry.CA(),
		Username: stemcells.DebianUsername, Password: stemcells.DebianPassword,
	}, changes...)
	return store
}

func debianRegistry() {
	It("stores a stemcell once, serves it, and deletes it", func(ctx SpecContext) {
		registry := startDebian(ctx, true)
		store, path := newDebianStore(registry), writeTempFile(stemcells.Jammy.Image())
		uploads := func() int { return strings.Count(strings.Join(registry.Requests(), "\n"), "PATCH /v2/") }
		cid, err := store.Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(uploads()).To(Equal(2), "a layer and a configuration")
		Expect(store.Push(ctx, path, jammy, nil)).To(Equal(cid))
		Expect(uploads()).To(Equal(2))

		pushed := strings.TrimPrefix(cid, "heavy://")
		reference, _, _ := strings.Cut(pushed, "#")
		pinned := stemcell.Properties{ImageReference: reference}
		Expect(store.Pin(ctx, pinned)).To(Equal(pushed))
		Expect(store.Delete(ctx, cid)).To(Succeed())
		_, err = store.Pin(ctx, pinned)
		Expect(err).To(MatchError(stemcell.ErrNotFound))
		Expect(store.Delete(ctx, cid)).To(Succeed())
		Expect(store.Push(ctx, path, jammy, nil)).To(Equal(cid))
	})

	It("causes specific errors if it denies access, is not trusted, or does not allow deletion", func(ctx SpecContext) {
		registry, path := startDebian(ctx, false), writeTempFile(stemcells.Jammy.Image())
		_, err := newDebianStore(registry, func(r *stemcell.Registry) { r.Password = "wrong" }).Push(ctx, path, jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrDenied))
		other, err := authority.New()
		Expect(err).NotTo(HaveOccurred())
		_, err = newDebianStore(registry, func(r *stemcell.Registry) { r.CA = other.Certificate }).Push(ctx, path, jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrUntrusted))
		_, err = newDebianStore(registry).Push(ctx, writeTempFile(stemcells.Jammy.Image()[:5000]), jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		cid, err := newDebianStore(registry).Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(newDebianStore(registry).Delete(ctx, cid)).To(MatchError(stemcell.ErrDeleteUnsupported))
	})
}

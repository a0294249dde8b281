package stemcell_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestStemcell(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "stemcell")
}

// newStore returns a store that pushes to the registry, and the store's log.
func newStore(registry *stemcells.Registry, changes ...func(*stemcell.Registry)) (stemcell.Store, *bytes.Buffer) {
	return newStoreWith(stemcell.Registry{
		Repository: registry.Host() + "/bosh/stemcells", Username: registry.Username,
		Password: stemcell.Secret(registry.Password), Insecure: true,
	}, changes...)
}

// newStoreWith returns a store with these settings, and the store's log. The store retries almost without delay.
func newStoreWith(registry stemcell.Registry, changes ...func(*stemcell.Registry)) (stemcell.Store, *bytes.Buffer) {
	for _, change := range changes {
		change(&registry)
	}
	options := stemcell.Options{Registry: registry}
	Expect(options.Validate()).To(Succeed())
	log := &bytes.Buffer{}
	return stemcell.Store{
		Options: options, Log: slog.New(slog.NewTextHandler(log, nil)),
		Backoff: remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3},
	}, log
}

// startRegistry starts a registry, and stops it at the end of the spec.
func startRegistry(withTLS bool) *stemcells.Registry {
	registry := stemcells.NewRegistry(withTLS)
	DeferCleanup(registry.Close)
	return registry
}

// writeTempFile writes the content to a temporary file, and returns its path. The file is deleted at the end of the spec.
func writeTempFile(content []byte) string {
	path := filepath.Join(GinkgoT().TempDir(), "image")
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}

var jammy = stemcell.Properties{Name: "bosh-warden-boshlite-ubuntu-jammy-go_agent", Version: "1.10"}

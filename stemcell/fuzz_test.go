package stemcell_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// FuzzCID checks that Image returns an error or a valid image reference, and that no architecture of a CID contains a separator.
func FuzzCID(f *testing.F) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, cid := range []string{
		"", "r.test/a", "r.test/a:1", "r.test/a@" + digest, "r.test/a@" + digest + "#amd64,arm64", "heavy://r.test/a@" + digest + "#amd64",
		"heavy://", "heavy://r.test/a:1", "ami-0a1b2c3d", "#", "a#b#c", "r.test/a@" + digest + "#../x", "r.test/a\n", "sc-" + digest,
	} {
		f.Add(cid)
	}
	options := stemcell.Options{
		Registry:        stemcell.Registry{Repository: "r.test/a", PullRepository: "pull.test/a"},
		RegistryMirrors: map[string]string{"r.test/b": "mirror.test/b"},
	}
	f.Fuzz(func(t *testing.T, cid string) {
		image, err := options.Image(cid)
		if err == nil {
			if _, parseErr := name.ParseReference(image); parseErr != nil || strings.TrimSpace(image) != image {
				t.Fatalf("the image of CID %q is %q, which is not a valid reference", cid, image)
			}
		}
		for _, architecture := range stemcell.Architectures(cid) {
			// The API server rejects an invalid label value, but accepts several valid ones.
			if strings.Contains(architecture, ",") {
				t.Fatalf("CID %q has architecture %q", cid, architecture)
			}
			_ = validation.IsValidLabelValue(architecture)
		}
		if !stemcell.SameImage(cid, cid) {
			t.Fatalf("CID %q does not refer to the same image as itself", cid)
		}
	})
}

// FuzzTarball checks that Extract accepts or rejects a tarball, and writes files only to the destination.
func FuzzTarball(f *testing.F) {
	seed := filepath.Join(f.TempDir(), "seed.tgz")
	for _, changes := range []map[string]string{nil, {"api_version": "1"}, {"sha1": "0"}, {"stemcell_formats": "[openstack]"}} {
		stemcells.Tarball(seed, stemcells.Jammy.Image(), changes)
		content, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		tarball, destination := filepath.Join(dir, "s.tgz"), filepath.Join(dir, "destination")
		if err := errors.Join(os.WriteFile(tarball, content, 0o600), os.Mkdir(destination, 0o700)); err != nil {
			t.Fatal(err)
		}
		_, image, err := stemcell.Extract(tarball, destination)
		if err != nil && !errors.Is(err, stemcell.ErrInvalid) {
			t.Fatalf("the error is not ErrInvalid: %v", err)
		}
		if err == nil && filepath.Dir(image) != destination {
			t.Fatalf("image %s is outside of the destination", image)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 2 {
			t.Fatalf("unexpected files outside of the destination: %v", entries)
		}
	})
}

// FuzzRootfs checks that Build accepts or rejects a root filesystem, and pushes no manifest for a rejected one.
func FuzzRootfs(f *testing.F) {
	registry := stemcells.NewRegistry(false)
	f.Cleanup(registry.Close)
	for _, seed := range [][]byte{stemcells.Jammy.Image(), stemcells.Jammy.Tar(), stemcells.Noble.Tar(), {}, []byte("not an archive")} {
		f.Add(seed)
	}
	store := stemcell.Store{
		Options: stemcell.Options{Registry: stemcell.Registry{Repository: registry.Host() + "/a", Insecure: true}},
		Log:     slog.New(slog.DiscardHandler),
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "rootfs")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		previous := registry.CountManifests()
		_, err := store.Build(context.Background(), file, stemcell.Properties{Name: "n", Version: "1"})
		switch {
		case err == nil && !bytes.Contains(content, []byte("agent")) && !bytes.HasPrefix(content, []byte{0x1f, 0x8b}):
			t.Fatal("a root filesystem without an agent was accepted")
		case err != nil && !errors.Is(err, stemcell.ErrInvalid):
			t.Fatalf("the error is not ErrInvalid: %v", err)
		case err != nil && registry.CountManifests() != previous:
			t.Fatalf("the registry has the manifest of a rejected stemcell: %v", err)
		}
	})
}

// Command image builds an image that contains only one static program, for several architectures, and prints its reference with the digest.
// It pushes the image to its registry, or with -layout writes it to a directory. The same programs always have the same digest.
//
//	image [-layout DIR] IMAGE ARCHITECTURE=PROGRAM...
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"bosh-kubernetes-cpi/stemcell"
)

func main() {
	dir := flag.String("layout", "", "write an OCI image layout to this new `directory` instead of pushing the image")
	flag.Parse()
	if err := run(*dir, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(dir string, args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("an image and at least one ARCHITECTURE=PROGRAM are required")
	}
	reference, err := name.NewTag(args[0])
	if err != nil {
		return fmt.Errorf("image %s: %w", args[0], err)
	}
	index, err := buildIndex(args[1:])
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if dir != "" {
		_, err = layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}))
	} else {
		err = remote.WriteIndex(reference, index, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", reference.Context(), digest)
	return err
}

// buildIndex returns the index of the images of these programs, in the form ARCHITECTURE=PROGRAM.
func buildIndex(programs []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range programs {
		architecture, path, _ := strings.Cut(program, "=")
		image, err := buildImage(architecture, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

// buildImage returns the image that runs the program in the file.
func buildImage(architecture, path string) (v1.Image, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the file is an argument
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return stemcell.NewImage(architecture, v1.Config{Entrypoint: []string{"/" + header.Name}}, layer)
}

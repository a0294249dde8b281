// Command image builds an image that contains only one static program, for nodes with amd64 and arm64. It prints the image's reference with
// the digest. The same sources and the same version of Go always have the same digest.
//
//	image [-layout DIR] IMAGE PACKAGE
//
// It pushes the image to its registry, which has TLS unless IMAGE begins with http://. With -layout it writes the image to this directory,
// as an OCI image layout in which the image has this name for containerd. If IMAGE has a digest, the image must have it.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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

// architectures are those of nodes.
var architectures = []string{"amd64", "arm64"}

func main() {
	dir := flag.String("layout", "", "write an OCI image layout to this new `directory` instead of pushing the image")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: image [-layout DIR] IMAGE PACKAGE")
	}
	reference, err := parseReference(args[0])
	if err != nil {
		return fmt.Errorf("image %s: %w", args[0], err)
	}
	index, err := buildIndex(ctx, args[1])
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	pinned := reference.Context().Digest(digest.String())
	if expected, ok := reference.(name.Digest); ok && expected != pinned {
		return fmt.Errorf("the image of %s has digest %s instead of %s; build it from the same sources, with the same version of Go",
			args[1], digest, expected.DigestStr())
	}
	if dir != "" {
		err = writeLayout(dir, index, pinned.Name())
	} else {
		err = remote.WriteIndex(reference, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, pinned.Name())
	return err
}

func parseReference(image string) (name.Reference, error) {
	if plain, ok := strings.CutPrefix(image, "http://"); ok {
		return name.ParseReference(plain, name.Insecure)
	}
	return name.ParseReference(image)
}

// writeLayout writes the image under this name to the directory.
func writeLayout(dir string, index v1.ImageIndex, imageName string) error {
	_, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{stemcell.ImageNameAnnotation: imageName}},
	}))
	return err
}

// buildIndex builds the program for all architectures, and returns the index of its images.
func buildIndex(ctx context.Context, pkg string) (v1.ImageIndex, error) {
	work, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		program := filepath.Join(work, architecture, filepath.Base(pkg))
		if err := buildProgram(ctx, architecture, pkg, program); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w", pkg, architecture, err)
		}
		image, err := buildImage(architecture, program)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

// buildProgram compiles the package. The program does not depend on the host, on directories, or on Go's environment variables.
func buildProgram(ctx context.Context, architecture, pkg, path string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, pkg)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	command.Stderr = os.Stderr
	return command.Run()
}

// buildImage returns the image that runs the program in the file.
func buildImage(architecture, path string) (v1.Image, error) {
	content, err := os.ReadFile(path)
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

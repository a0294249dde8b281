package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"bosh-kubernetes-cpi/stemcell"
)

// temporaryRegistry serves a registry on loopback, with blobs in dir, until stop is called.
func temporaryRegistry(ctx context.Context, dir string) (address string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir))),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

// loadImage builds the image with build, which pushes it to the given registry, and runs the load command with the image's archive. The
// name of the image in the archive is its digest in the repository. loadImage returns the digest.
func (o options) loadImage(
	ctx context.Context, build func(stemcell.Registry) (name.Digest, error), output io.Writer,
) (digest string, err error) {

	dir, err := os.MkdirTemp("", "build-stemcell-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	address, stop, err := temporaryRegistry(ctx, dir)
	if err != nil {
		return "", err
	}
	defer stop()
	pushed, err := build(stemcell.Registry{Repository: address + "/stemcell", Insecure: true})
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "stemcell.tar")
	if err := writeArchive(ctx, pushed, o.repository+"@"+pushed.DigestStr(), filepath.Join(dir, "layout"), archive); err != nil {
		return "", fmt.Errorf("write the image archive: %w", err)
	}
	command := exec.CommandContext(ctx, "sh", "-c", o.load+` "$1"`, "load", archive)
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("the command of -load failed: %s %s: %w", o.load, archive, err)
	}
	return pushed.DigestStr(), nil
}

// writeArchive writes the image in the registry to an archive in the OCI layout, in which it has this name.
func writeArchive(ctx context.Context, pushed name.Digest, imageName, dir, archive string) (err error) {
	image, err := remote.Image(pushed, remote.WithContext(ctx))
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{stemcell.ImageNameAnnotation: imageName})); err != nil {
		return err
	}
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	writer := tar.NewWriter(file)
	if err := writer.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return writer.Close()
}

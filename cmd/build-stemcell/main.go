// Command build-stemcell turns a stemcell's root filesystem into a container image in a registry and
// a light stemcell tarball that names it by digest. It needs no Docker.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"bosh-kubernetes-cpi/stemcell"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "build-stemcell:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	rootfs := flag.String("rootfs", "", "the root filesystem, a tar archive, gzipped or not (a warden stemcell's image)")
	system := flag.String("os", "ubuntu-jammy", "the stemcell's operating_system")
	version := flag.String("version", "", "the stemcell's version")
	repository := flag.String("repository", "", "where to push the image, for example registry.example.com/stemcells/ubuntu-jammy")
	output := flag.String("output", ".", "folder for the stemcell tarball")
	flag.Parse()
	for name, value := range map[string]string{"rootfs": *rootfs, "version": *version, "repository": *repository} {
		if value == "" {
			return fmt.Errorf("-%s is missing; see -help", name)
		}
	}
	target, err := name.NewTag(*repository + ":" + *version)
	if err != nil {
		return err
	}
	image, err := stemcell.ImageFromRootfs(*rootfs)
	if err != nil {
		return err
	}
	if err := remote.Write(target, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", target, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	tarball := stemcell.LightTarball{
		Name: "bosh-kubernetes-" + *system, Version: *version, OperatingSystem: *system,
		Repository: *repository, Digest: digest.String(),
	}
	path := filepath.Join(*output, fmt.Sprintf("light-bosh-stemcell-%s-kubernetes-%s.tgz", *version, *system))
	if err := tarball.Write(path); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

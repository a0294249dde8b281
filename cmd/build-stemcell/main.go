// Command build-stemcell turns a warden stemcell's tarball, or a stemcell's root filesystem, into a
// container image in a registry and a light stemcell tarball that names it by digest; or makes such a tarball for an
// image that is in a registry already. It needs no Docker.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"

	"bosh-kubernetes-cpi/stemcell"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := run(ctx, os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "build-stemcell:", inFlags(err))
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stdout, path)
	}
}

// inputs are what the command line says.
type inputs struct {
	tarball, rootfs, image   string
	name, system, version    string
	repository, ca, username string
	insecure                 bool
	output                   string
}

func parse(arguments []string, log io.Writer) (inputs, error) {
	var in inputs
	flags := flag.NewFlagSet("build-stemcell", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&in.tarball, "stemcell", "", "a stemcell tarball with a root filesystem (bosh-stemcell-…-warden-boshlite-….tgz)")
	flags.StringVar(&in.rootfs, "rootfs", "", "instead: a root filesystem with a BOSH agent, as a tar archive, gzipped or not")
	flags.StringVar(&in.image, "image", "", "instead: a stemcell's image that is in a registry already, "+
		"for example ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.639")
	flags.StringVar(&in.system, "os", "", "the stemcell's operating_system, with -rootfs; for example ubuntu-jammy. "+
		"With -image where its name does not tell")
	flags.StringVar(&in.version, "version", "", "the stemcell's version, likewise")
	flags.StringVar(&in.name, "name", "", "the stemcell's name; bosh-kubernetes-<operating system> by default")
	flags.StringVar(&in.repository, "repository", "", "where to push the image, for example registry.example.com/stemcells/ubuntu-jammy")
	flags.StringVar(&in.ca, "ca", "", "file with the certificate authority of the registry (PEM)")
	flags.StringVar(&in.username, "username", "", "user name for the registry; its password is read from $REGISTRY_PASSWORD. "+
		"$REGISTRY_TOKEN takes a bearer token. Docker's configuration is used without them")
	flags.BoolVar(&in.insecure, "insecure", false, "allow plain HTTP")
	flags.StringVar(&in.output, "output", ".", "folder for the stemcell tarball")
	if err := flags.Parse(arguments); err != nil {
		return in, err
	}
	if err := in.check(flags.Args()); err != nil || in.image == "" {
		return in, err
	}
	reference, err := name.ParseReference(in.image)
	if err != nil {
		return in, fmt.Errorf("-image is not an image's reference: %w", err)
	}
	in.repository = reference.Context().Name()
	return in, nil
}

func (in inputs) check(surplus []string) error {
	sources := 0
	for _, source := range []string{in.tarball, in.rootfs, in.image} {
		if source != "" {
			sources++
		}
	}
	switch {
	case len(surplus) > 0:
		return fmt.Errorf("%q is no flag; see -help", surplus[0])
	case sources != 1:
		return errors.New("give one of -stemcell, -rootfs and -image; see -help")
	case in.image != "" && in.repository != "":
		return errors.New("-repository is where an image is pushed to, and that of -image is there already; see -help")
	case in.image == "" && in.repository == "":
		return errors.New("-repository is missing; see -help")
	case in.tarball != "" && (in.system != "" || in.version != ""):
		return errors.New("-os and -version are in the stemcell's own stemcell.MF; they belong to -rootfs and -image")
	case in.rootfs != "" && (in.system == "" || in.version == ""):
		return errors.New("-rootfs needs -os and -version; see -help")
	}
	return nil
}

// run returns the path of the light stemcell tarball.
func run(ctx context.Context, arguments []string, env func(string) string, log io.Writer) (string, error) {
	in, err := parse(arguments, log)
	if err != nil {
		return "", err
	}
	store, err := in.store(env, log)
	if err != nil {
		return "", err
	}
	var light stemcell.LightTarball
	if in.image != "" {
		light, err = in.existing(ctx, store)
	} else {
		light, err = in.built(ctx, store)
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(in.output, fmt.Sprintf("light-bosh-stemcell-%s-kubernetes-%s.tgz", light.Version, light.OperatingSystem))
	if err := light.Write(path); err != nil {
		return "", fmt.Errorf("write the stemcell tarball: %w", err)
	}
	return path, nil
}

// apiVersion is what the stemcell.MF of published stemcells says of their agents.
const apiVersion = 3

// built is the stemcell of an image that is made here, and pushed.
func (in inputs) built(ctx context.Context, store stemcell.Store) (light stemcell.LightTarball, err error) {
	manifest, image := stemcell.Manifest{OperatingSystem: in.system, Version: in.version, APIVersion: apiVersion}, in.rootfs
	if in.tarball != "" {
		folder, err := os.MkdirTemp("", "build-stemcell-")
		if err != nil {
			return light, err
		}
		defer os.RemoveAll(folder)
		if manifest, image, err = stemcell.Extract(in.tarball, folder); err != nil {
			return light, err
		}
	}
	light = in.light(manifest)
	pinned, err := store.Build(ctx, image, stemcell.Properties{Name: light.Name, Version: light.Version})
	light.Repository, light.Digest = in.repository, pinned.DigestStr()
	return light, err
}

// existing is the stemcell of an image that is in a registry already.
func (in inputs) existing(ctx context.Context, store stemcell.Store) (light stemcell.LightTarball, err error) {
	found, err := store.InspectImage(ctx, in.image)
	if err != nil {
		return light, err
	}
	manifest := stemcell.Manifest{
		OperatingSystem: cmp.Or(in.system, found.OperatingSystem), Version: cmp.Or(in.version, found.Version), APIVersion: apiVersion,
	}
	if manifest.OperatingSystem == "" || manifest.Version == "" {
		return light, errors.New("the image does not tell the stemcell's operating system and version: give -os and -version")
	}
	light = in.light(manifest)
	light.Repository, light.Digest = in.repository, found.Image.DigestStr()
	for _, platform := range found.Platforms {
		store.Log.Info("the image is in the registry", "image", found.Image.String(), "platform", platform.String())
	}
	return light, nil
}

// light is the stemcell, but for its image.
func (in inputs) light(manifest stemcell.Manifest) stemcell.LightTarball {
	return stemcell.LightTarball{
		Name: cmp.Or(in.name, "bosh-kubernetes-"+manifest.OperatingSystem), Version: manifest.Version,
		OperatingSystem: manifest.OperatingSystem, APIVersion: manifest.APIVersion,
	}
}

// store is the registry that the command line names.
func (in inputs) store(env func(string) string, log io.Writer) (stemcell.Store, error) {
	registry := stemcell.Registry{
		Repository: in.repository, Username: in.username, Password: stemcell.Secret(env("REGISTRY_PASSWORD")),
		Token: stemcell.Secret(env("REGISTRY_TOKEN")), Insecure: in.insecure,
	}
	if in.username == "" {
		registry.Password = ""
	}
	if in.ca != "" {
		pem, err := os.ReadFile(in.ca)
		if err != nil {
			return stemcell.Store{}, fmt.Errorf("-ca: %w", err)
		}
		registry.CA = string(pem)
	}
	options := stemcell.Options{Registry: registry}
	if err := options.Validate(); err != nil {
		return stemcell.Store{}, err
	}
	return stemcell.Store{Options: options, Log: slog.New(slog.NewTextHandler(log, nil))}, nil
}

// inFlags says a problem in the command's words instead of those of the CPI's configuration.
func inFlags(err error) string {
	return strings.NewReplacer(
		"set stemcell.registry.insecure to true", "give -insecure",
		"set stemcell.registry.ca to", "give in -ca a file with",
		"stemcell.registry.username and password, or token", "-username, $REGISTRY_PASSWORD and $REGISTRY_TOKEN",
		"stemcell.registry.password", "$REGISTRY_PASSWORD", "stemcell.registry.token", "$REGISTRY_TOKEN",
		"the account of stemcell.registry", "the account", "stemcell.registry.", "-").Replace(err.Error())
}

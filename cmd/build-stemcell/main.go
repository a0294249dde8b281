// Command build-stemcell builds a light stemcell. It pushes the root filesystem of a warden stemcell, or a root filesystem tarball,
// to a registry as a container image, and writes a light stemcell tarball that references the image by digest. It can also write
// that tarball for an image that is in a registry already. It does not require Docker.
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
		fmt.Fprintln(os.Stderr, "build-stemcell:", withFlagNames(err))
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stdout, path)
	}
}

// inputs are the values of the command line flags.
type inputs struct {
	tarball, rootfs, image   string
	name, system, version    string
	repository, ca, username string
	insecure                 bool
	output                   string
}

func parseFlags(arguments []string, log io.Writer) (inputs, error) {
	var in inputs
	flags := flag.NewFlagSet("build-stemcell", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&in.tarball, "stemcell", "", "`path` of a stemcell tarball with a root filesystem (bosh-stemcell-…-warden-boshlite-….tgz)")
	flags.StringVar(&in.rootfs, "rootfs", "", "instead of -stemcell: `path` of a root filesystem with a BOSH agent, "+
		"as a tar archive that may be gzipped")
	flags.StringVar(&in.image, "image", "", "instead of -stemcell: stemcell `image` in a registry, "+
		"for example ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.639")
	flags.StringVar(&in.system, "os", "", "operating_system of the stemcell, for example ubuntu-jammy; required with -rootfs, "+
		"and with -image unless the image's labels or name contain it")
	flags.StringVar(&in.version, "version", "", "version of the stemcell; required under the same conditions as -os")
	flags.StringVar(&in.name, "name", "", "name of the stemcell (default: bosh-kubernetes- and the operating system)")
	flags.StringVar(&in.repository, "repository", "", "`repository` to push the image to, "+
		"for example registry.example.com/stemcells/ubuntu-jammy; required unless -image is given")
	flags.StringVar(&in.ca, "ca", "", "`path` of a PEM file with the certificate authority of the registry")
	flags.StringVar(&in.username, "username", "", "user `name` at the registry, with its password in $REGISTRY_PASSWORD; "+
		"or set $REGISTRY_TOKEN to a bearer token (default: the credentials of Docker's configuration)")
	flags.BoolVar(&in.insecure, "insecure", false, "allow plain HTTP for the registry")
	flags.StringVar(&in.output, "output", ".", "`folder` for the stemcell tarball")
	if err := flags.Parse(arguments); err != nil {
		return in, err
	}
	if err := in.validate(flags.Args()); err != nil || in.image == "" {
		return in, err
	}
	reference, err := name.ParseReference(in.image)
	if err != nil {
		return in, fmt.Errorf("-image is not a valid image reference: %w", err)
	}
	in.repository = reference.Context().Name()
	return in, nil
}

func (in inputs) validate(extra []string) error {
	sources := 0
	for _, source := range []string{in.tarball, in.rootfs, in.image} {
		if source != "" {
			sources++
		}
	}
	switch {
	case len(extra) > 0:
		return fmt.Errorf("unexpected argument %q; see -help", extra[0])
	case sources != 1:
		return errors.New("exactly one of -stemcell, -rootfs and -image is required; see -help")
	case in.image != "" && in.repository != "":
		return errors.New("-repository and -image exclude each other: the image is in a registry already; see -help")
	case in.image == "" && in.repository == "":
		return errors.New("-repository is missing; see -help")
	case in.tarball != "" && (in.system != "" || in.version != ""):
		return errors.New("-os and -version require -rootfs or -image; the stemcell.MF of a stemcell tarball contains them")
	case in.rootfs != "" && (in.system == "" || in.version == ""):
		return errors.New("-rootfs requires -os and -version; see -help")
	}
	return nil
}

// run builds the light stemcell and returns the path of its tarball.
func run(ctx context.Context, arguments []string, env func(string) string, log io.Writer) (string, error) {
	in, err := parseFlags(arguments, log)
	if err != nil {
		return "", err
	}
	store, err := in.newStore(env, log)
	if err != nil {
		return "", err
	}
	var light stemcell.LightTarball
	if in.image != "" {
		light, err = in.inspectImage(ctx, store)
	} else {
		light, err = in.buildImage(ctx, store)
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

// apiVersion is the stemcell API version that the stemcell.MF of published stemcells declares.
const apiVersion = 3

// buildImage builds and pushes an image, and returns a light stemcell that references it.
func (in inputs) buildImage(ctx context.Context, store stemcell.Store) (light stemcell.LightTarball, err error) {
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
	light = in.newLightTarball(manifest)
	pinned, err := store.Build(ctx, image, stemcell.Properties{Name: light.Name, Version: light.Version})
	light.Repository, light.Digest = in.repository, pinned.DigestStr()
	return light, err
}

// inspectImage returns a light stemcell that references an image in a registry.
func (in inputs) inspectImage(ctx context.Context, store stemcell.Store) (light stemcell.LightTarball, err error) {
	info, err := store.InspectImage(ctx, in.image)
	if err != nil {
		return light, err
	}
	manifest := stemcell.Manifest{
		OperatingSystem: cmp.Or(in.system, info.OperatingSystem), Version: cmp.Or(in.version, info.Version), APIVersion: apiVersion,
	}
	if manifest.OperatingSystem == "" || manifest.Version == "" {
		return light, errors.New("the operating system and version of the image are unknown; give -os and -version")
	}
	light = in.newLightTarball(manifest)
	light.Repository, light.Digest = in.repository, info.Image.DigestStr()
	for _, platform := range info.Platforms {
		store.Log.Info("found image in registry", "image", info.Image.String(), "platform", platform.String())
	}
	return light, nil
}

// newLightTarball returns the light stemcell without its image reference.
func (in inputs) newLightTarball(manifest stemcell.Manifest) stemcell.LightTarball {
	return stemcell.LightTarball{
		Name: cmp.Or(in.name, "bosh-kubernetes-"+manifest.OperatingSystem), Version: manifest.Version,
		OperatingSystem: manifest.OperatingSystem, APIVersion: manifest.APIVersion,
	}
}

// newStore returns a store for the registry of the command line.
func (in inputs) newStore(env func(string) string, log io.Writer) (stemcell.Store, error) {
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

// withFlagNames replaces the names of CPI properties in an error of package stemcell with those of flags and environment variables.
func withFlagNames(err error) string {
	return strings.NewReplacer(
		"set stemcell.registry.insecure to true", "use -insecure",
		"set stemcell.registry.ca to", "use -ca with a file that contains",
		"stemcell.registry.username and password, or token", "-username, $REGISTRY_PASSWORD and $REGISTRY_TOKEN",
		"stemcell.registry.password", "$REGISTRY_PASSWORD", "stemcell.registry.token", "$REGISTRY_TOKEN",
		"the account of stemcell.registry", "the account", "stemcell.registry.", "-").Replace(err.Error())
}

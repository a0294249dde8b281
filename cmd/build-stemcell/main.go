// Command build-stemcell builds a light stemcell. It pushes the root filesystem of a warden stemcell, or a root filesystem tarball,
// to a registry as a container image, or loads it into nodes, and writes a light stemcell tarball that references the image by digest. It
// can also write the tarball for an image that is already in a registry. It does not need Docker.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
		fmt.Fprintln(os.Stderr, "build-stemcell:", errorMessage(err))
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stdout, path)
	}
}

const usage = `Build a light stemcell: push a root filesystem to a registry as a container image, and write a light stemcell tarball that
references the image by digest. With -load, load the image into the nodes of a local cluster, without a registry. With -image, write
the tarball for an image that is already in a registry.

Usage:
  build-stemcell -stemcell path -repository repository [flags]
  build-stemcell -rootfs path -os system -version version -repository repository [flags]
  build-stemcell -stemcell path -load command [flags]
  build-stemcell -image image [flags]

Flags:
`

// options are the values of the command line flags.
type options struct {
	stemcell, rootfs, image        string
	name, operatingSystem, version string
	repository, ca, username       string
	insecure                       bool
	load, output                   string
}

func parseFlags(args []string, log io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("build-stemcell", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() {
		fmt.Fprint(log, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.stemcell, "stemcell", "", "`path` of a stemcell tarball with a root filesystem "+
		"(bosh-stemcell-…-warden-boshlite-….tgz)")
	flags.StringVar(&o.rootfs, "rootfs", "", "instead of -stemcell: `path` of a root filesystem with a BOSH agent, "+
		"as a tar archive, optionally gzipped")
	flags.StringVar(&o.image, "image", "", "instead of -stemcell: stemcell `image` in a registry, "+
		"for example ghcr.io/cloudfoundry/ubuntu-noble-stemcell:1.484")
	flags.StringVar(&o.operatingSystem, "os", "", "operating `system` of the stemcell, for example ubuntu-noble; required with -rootfs, "+
		"and with -image unless the image's labels or name contain it")
	flags.StringVar(&o.version, "version", "", "`version` of the stemcell; required with -rootfs, "+
		"and with -image unless the image's labels or name contain it")
	flags.StringVar(&o.name, "name", "", "`name` of the stemcell (default: bosh-kubernetes-OS)")
	flags.StringVar(&o.repository, "repository", "", "`repository` to push the image to, "+
		"for example registry.example.com/stemcells/ubuntu-noble; required unless -image or -load is set "+
		"(default with -load: "+loadedRepository+")")
	flags.StringVar(&o.load, "load", "", "instead of a push: `command` that loads an image archive into the nodes, which run containerd; "+
		"the archive's path is appended to it, for example \"kind load image-archive\" or \"k3d image import\"")
	flags.StringVar(&o.ca, "ca", "", "`file` with the registry's CA certificate (PEM)")
	flags.StringVar(&o.username, "username", "", "`username` for the registry, with the password in $REGISTRY_PASSWORD; "+
		"or set $REGISTRY_TOKEN to a bearer token (default: the credentials in Docker's configuration)")
	flags.BoolVar(&o.insecure, "insecure", false, "allow plain HTTP for the registry")
	flags.StringVar(&o.output, "output", "", "`directory` for the stemcell tarball (default: the current directory)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if err := o.validate(flags.Args()); err != nil {
		return o, err
	}
	if o.load != "" {
		o.repository = cmp.Or(o.repository, loadedRepository)
	}
	if o.image == "" {
		return o, nil
	}
	reference, err := name.ParseReference(o.image)
	if err != nil {
		return o, fmt.Errorf("-image is not a valid image reference: %w", err)
	}
	o.repository = reference.Context().Name()
	return o, nil
}

// loadedRepository is the default repository in the name of an image that is loaded into nodes. No registry has this host name.
const loadedRepository = "bosh.internal/stemcell"

func (o options) validate(args []string) error {
	sources := slices.DeleteFunc([]string{o.stemcell, o.rootfs, o.image}, func(source string) bool { return source == "" })
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q; see -help", args[0])
	case len(sources) != 1:
		return errors.New("exactly one of -stemcell, -rootfs and -image is required; see -help")
	case o.image != "" && o.repository != "":
		return errors.New("-repository and -image are mutually exclusive: the image is already in a registry")
	case o.load != "" && (o.image != "" || o.ca != "" || o.username != "" || o.insecure):
		return errors.New("-load and -image, -ca, -username and -insecure are mutually exclusive: -load uses no registry")
	case o.image == "" && o.repository == "" && o.load == "":
		return errors.New("-repository is required unless -image or -load is set")
	case o.stemcell != "" && (o.operatingSystem != "" || o.version != ""):
		return errors.New("-os and -version require -rootfs or -image; with -stemcell, they are read from stemcell.MF")
	case o.rootfs != "" && (o.operatingSystem == "" || o.version == ""):
		return errors.New("-rootfs requires -os and -version")
	}
	return nil
}

// run builds the light stemcell and returns the path of its tarball.
func run(ctx context.Context, args []string, env func(string) string, output io.Writer) (string, error) {
	log.SetFlags(0) // log messages are lines like the others
	log.SetOutput(output)
	o, err := parseFlags(args, output)
	if err != nil {
		return "", err
	}
	store, err := o.newStore(env)
	if err != nil {
		return "", err
	}
	var light stemcell.Manifest
	if o.image != "" {
		light, err = store.LightManifest(ctx, o.image, stemcell.Manifest{Name: o.name, OperatingSystem: o.operatingSystem, Version: o.version})
	} else {
		light, err = o.buildImage(ctx, store, output)
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(o.output, light.LightFileName())
	if err := light.WriteLight(path); err != nil {
		return "", fmt.Errorf("write the stemcell tarball: %w", err)
	}
	return path, nil
}

// buildImage builds an image, pushes or loads it, and returns the manifest of a light stemcell that references it.
func (o options) buildImage(ctx context.Context, store stemcell.Store, log io.Writer) (light stemcell.Manifest, err error) {
	light, image := stemcell.Manifest{OperatingSystem: o.operatingSystem, Version: o.version}, o.rootfs
	if o.stemcell != "" {
		dir, err := os.MkdirTemp("", "build-stemcell-")
		if err != nil {
			return light, err
		}
		defer os.RemoveAll(dir)
		if light, image, err = stemcell.Extract(o.stemcell, dir); err != nil {
			return light, err
		}
	}
	light.Name = o.name
	light = stemcell.NewLightManifest(light)
	light.CloudProperties = stemcell.Properties{Name: light.Name, Version: light.Version, ImageReference: o.repository}
	build := func(registry stemcell.Registry) (name.Digest, error) {
		store.Registry = registry
		return store.Build(ctx, image, light.CloudProperties)
	}
	if o.load != "" {
		light.CloudProperties.Digest, err = o.loadImage(ctx, build, log)
		return light, err
	}
	pinned, err := build(store.Registry)
	light.CloudProperties.Digest = pinned.DigestStr()
	return light, err
}

// newStore returns a store for the registry that the flags select.
func (o options) newStore(env func(string) string) (stemcell.Store, error) {
	registry := stemcell.Registry{
		Repository: o.repository, Username: o.username, Password: stemcell.Secret(env("REGISTRY_PASSWORD")),
		Token: stemcell.Secret(env("REGISTRY_TOKEN")), Insecure: o.insecure,
	}
	if o.username == "" {
		registry.Password = ""
	}
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return stemcell.Store{}, fmt.Errorf("-ca: %w", err)
		}
		registry.CA = string(pem)
	}
	storeOptions := stemcell.Options{Registry: registry}
	if err := storeOptions.Validate(); err != nil {
		return stemcell.Store{}, err
	}
	return stemcell.Store{Options: storeOptions, Log: slog.Default()}, nil
}

// flagNames replaces the CPI properties in errors of package stemcell with flags and environment variables.
var flagNames = strings.NewReplacer(
	"of the image are unknown; set both", "of the image are unknown; set -os and -version",
	"set kubernetes.stemcell.registry.insecure to true", "use -insecure",
	"set kubernetes.stemcell.registry.ca to", "use -ca with a file that contains",
	"kubernetes.stemcell.registry.ca contains", "the file passed to -ca contains",
	"kubernetes.stemcell.registry.username and password, or token", "-username, $REGISTRY_PASSWORD and $REGISTRY_TOKEN",
	"kubernetes.stemcell.registry.password", "$REGISTRY_PASSWORD", "kubernetes.stemcell.registry.token", "$REGISTRY_TOKEN",
	"the account of kubernetes.stemcell.registry", "the account", "kubernetes.stemcell.registry.", "-",
)

// errorMessage returns the message of an error in terms of flags and environment variables.
func errorMessage(err error) string { return flagNames.Replace(err.Error()) }

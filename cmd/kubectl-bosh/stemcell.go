package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/stemcell"
)

// publishedImages is where BOSH publishes images of stemcells, for example ghcr.io/cloudfoundry/ubuntu-noble-stemcell:1.484.
const publishedImages = "ghcr.io/cloudfoundry"

// stemcellOptions are the flags of `kubectl bosh stemcell`.
type stemcellOptions struct {
	run             runOptions
	from            string
	operatingSystem string
	version         string
	output          string
}

func newStemcellCommand(conn *connection) *cobra.Command {
	var options stemcellOptions
	command := &cobra.Command{
		Use:   "stemcell IMAGE|OS [VERSION]",
		Short: "Create a light stemcell for an image, and upload it",
		Long: "Create a light stemcell for an image of a registry, and upload it to the director of an environment directory. The image is\n" +
			"pinned by its digest; your credentials for the registry are those in Docker's configuration. For an operating system, the image\n" +
			"is the one that BOSH publishes, by default of the latest version.",
		Example: `  # The latest Noble
  kubectl bosh stemcell ubuntu-noble

  # An image in a registry of your own
  kubectl bosh stemcell registry.example.com/stemcells/ubuntu-noble-stemcell:1.484

  # Write the stemcell to a file, for bosh upload-stemcell or kubectl bosh up
  kubectl bosh stemcell ubuntu-noble 1.484 --output .`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("stemcell requires an IMAGE, or an OS such as ubuntu-noble and optionally its VERSION")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return options.execute(command, conn, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.from, "from", publishedImages, "Registry and `path` of the images for an OS, for example of a mirror")
	flags.StringVar(&options.operatingSystem, "os", "", "Operating `system`, if neither labels nor the name of the image contain it")
	flags.StringVar(&options.version, "version", "", "The `version`, if neither labels nor the tag of the image contain it")
	flags.StringVar(&options.output, "output", "", "Write the stemcell to this `directory`, and do not upload it")
	flags.StringVar(&options.run.dir, "dir", "", "Environment `directory` (default: "+defaultDirectorName+")")
	flags.StringVar(&options.run.bosh, "bosh", "", "BOSH CLI `program` (default: bosh)")
	flags.BoolVar(&options.run.noProxy, "no-proxy", false, "Run the BOSH CLI without a proxy; requires a network route to the director")
	return command
}

func (o stemcellOptions) execute(command *cobra.Command, conn *connection, args []string) error {
	ctx := command.Context()
	if o.output == "" {
		if err := o.run.checkBOSHCLI(ctx); err != nil {
			return err
		}
	}
	image, err := o.image(ctx, args)
	if err != nil {
		return err
	}
	if o.output != "" {
		path, err := o.write(ctx, image, o.output)
		if err == nil {
			_, err = fmt.Fprintln(command.OutOrStdout(), path)
		}
		return err
	}
	dir := environment.Dir{Path: cmp.Or(o.run.dir, defaultDirectorName)}
	login, err := dir.Login()
	if err != nil {
		return fmt.Errorf("%w; for a director without `up`, use --output, and `bosh upload-stemcell`", err)
	}
	settings, err := conn.readSettings(dir)
	if err != nil {
		return err
	}
	run, _, err := newEnvironmentRun(command, conn, o.run, dir, settings.Namespace)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "kubectl-bosh-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	path, err := o.write(ctx, image, temporary)
	if err != nil {
		return err
	}
	upload := []string{o.run.boshProgram(), "upload-stemcell", path, "--tty", "--non-interactive"}
	return run.execBOSH(ctx, upload, environment.Assignments(login.Variables())...)
}

// image returns the reference of the image that the arguments select.
func (o stemcellOptions) image(ctx context.Context, args []string) (string, error) {
	if strings.ContainsAny(args[0], "/:") {
		if len(args) > 1 {
			return "", fmt.Errorf("VERSION %s requires an OS instead of an IMAGE; set it with --version", args[1])
		}
		return args[0], nil
	}
	repository := o.from + "/" + args[0] + "-stemcell"
	if len(args) > 1 {
		return repository + ":" + args[1], nil
	}
	version, err := newStemcellStore().LatestVersion(ctx, repository)
	return repository + ":" + version, stemcell.WithRemedies(err, registryRemedies)
}

// write writes the light stemcell for the image to the directory, and returns its path.
func (o stemcellOptions) write(ctx context.Context, image, dir string) (path string, err error) {
	light, err := newStemcellStore().LightManifest(ctx, image, stemcell.Manifest{OperatingSystem: o.operatingSystem, Version: o.version})
	if err != nil {
		err = stemcell.WithRemedies(err, registryRemedies)
		if errors.Is(err, stemcell.ErrInvalid) {
			err = fmt.Errorf("%w; `kubectl bosh stemcell` has the flags --os and --version", err)
		}
		return "", fmt.Errorf("image %s: %w", image, err)
	}
	path = filepath.Join(dir, light.LightFileName())
	return path, light.WriteLight(path)
}

// registryRemedies replace those for the configuration of the CPI, which this program does not have.
var registryRemedies = map[error]string{
	stemcell.ErrDenied:    "log in with `docker login`, as a user with permission to pull the image",
	stemcell.ErrUntrusted: "use a registry with TLS, and a certificate that this host trusts",
	stemcell.ErrNotFound:  "check the name and the tag",

	context.DeadlineExceeded: "check the network and the registry",
}

func newStemcellStore() stemcell.Store { return stemcell.Store{Log: slog.New(slog.DiscardHandler)} }

// isImage reports whether the value of --stemcell is an image reference, and neither a URL nor a file.
func isImage(value string) bool {
	if value == "" || strings.Contains(value, "://") || strings.HasSuffix(value, ".tgz") {
		return false
	}
	if _, err := os.Stat(value); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err := name.ParseReference(value)
	return err == nil && strings.Contains(value, "/")
}

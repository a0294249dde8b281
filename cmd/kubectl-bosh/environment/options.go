package environment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// Options are the values of the operator's flags. For empty options, the recorded decisions apply, or an inspection of the cluster
// decides.
type Options struct {
	Director  string // name
	Namespace string
	Cluster   *cluster.Identity // identity to record in the directory
	LostVM    string            // CID of the director's VM if create-env must recreate it, otherwise ""

	BOSHDeployment string // directory of a bosh-deployment checkout
	Manifest       string // path, instead of bosh.yml in BOSHDeployment
	UsePublished   bool   // use PublishedManifest, without the two options above
	OpsFiles       []string
	Vars           []string // NAME=VALUE

	Release, ReleaseSHA1   string // path or URL; ResolvePublished replaces Published
	Stemcell, StemcellSHA1 string
	// PublishedRelease and PublishedStemcell are used for a new director without the options above.
	PublishedRelease, PublishedStemcell PublishedFile
	// PublishedNodeImage is the reference of the image of bosh-node that belongs to PublishedRelease.
	PublishedNodeImage string

	Network     string // NetworkStatic or NetworkService
	Range       string
	Address     string
	Credentials string // CredentialsInCluster or CredentialsKubeconfig

	Restricted      bool // limit the CPI's permissions and the traffic of VMs
	ReplaceServer   bool // in the kubeconfig of the CPI that create-env runs
	AllowPrivileged bool // change the label of an existing namespace to admit VM Pods

	// KubectlFlags are the operator's flags that select the cluster and the user.
	KubectlFlags []string
}

// PublishedFile is a file that was published with this program, or empty.
type PublishedFile struct{ URL, Checksum string }

// ParsePublishedFile parses a URL and a checksum, separated by a space, as scripts/build-kubectl-bosh sets them.
func ParsePublishedFile(text string) PublishedFile {
	url, checksum, _ := strings.Cut(text, " ")
	return PublishedFile{URL: url, Checksum: checksum}
}

// String describes the file in the help of flags.
func (f PublishedFile) String() string { return cmp.Or(f.URL, "none") }

// Published is the value of Release that selects PublishedRelease.
const Published = "published"

// Types of the director's address.
const (
	NetworkStatic  = "static"  // a Pod address, requested from the network plugin
	NetworkService = "service" // the address of a Service that remains when the VM is recreated
)

// Types of the director's credentials for the API server.
const (
	CredentialsInCluster  = "in-cluster" // service account of its Pod
	CredentialsKubeconfig = "kubeconfig" // kubeconfig with a token
)

// checksumFormat matches the checksums that releases use.
var checksumFormat = regexp.MustCompile(`^([0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})(;|$)`)

// ResolvePublished replaces the release Published by the URL and checksum of PublishedRelease.
func (o *Options) ResolvePublished() error {
	if o.Release != Published {
		return nil
	}
	if o.PublishedRelease.URL == "" {
		return errors.New("--release published: this program was not published with a release; set --release to a path or URL")
	}
	if o.ReleaseSHA1 != "" {
		return errors.New("--release published has a checksum; remove --release-sha1")
	}
	o.Release, o.ReleaseSHA1 = o.PublishedRelease.URL, o.PublishedRelease.Checksum
	return nil
}

// Validate checks the options without a cluster.
func (o Options) Validate() error {
	if o.BOSHDeployment != "" && o.Manifest != "" {
		return errors.New("--bosh-deployment and --manifest are mutually exclusive; remove one")
	}
	if err := validateChoice("--network", o.Network, NetworkStatic, NetworkService); err != nil {
		return err
	}
	if err := validateChoice("--credentials", o.Credentials, CredentialsInCluster, CredentialsKubeconfig); err != nil {
		return err
	}
	if invalid := validation.IsValidLabelValue(o.Director); len(invalid) > 0 {
		return fmt.Errorf("--name %q is not a valid label value: %s", o.Director, strings.Join(invalid, "; "))
	}
	if o.Range != "" {
		prefix, err := netip.ParsePrefix(o.Range)
		if err != nil || prefix != prefix.Masked() {
			return fmt.Errorf("--range %q is not a CIDR such as 10.244.128.0/17", o.Range)
		}
		if prefix.Addr().BitLen()-prefix.Bits() < 5 {
			return fmt.Errorf("--range %s has fewer than 32 addresses; the cloud config reserves the first %d", o.Range, lastReservedOffset)
		}
	}
	if o.Address != "" {
		if _, err := netip.ParseAddr(o.Address); err != nil {
			return fmt.Errorf("--address %q is not a valid IP address", o.Address)
		}
	}
	if o.Range != "" && o.Network == NetworkService {
		return errors.New("--range requires --network static; the address of a Service is in the cluster's Service range")
	}
	for flag, values := range map[string][2]string{"release": {o.Release, o.ReleaseSHA1}, "stemcell": {o.Stemcell, o.StemcellSHA1}} {
		switch location, checksum := values[0], values[1]; {
		case isURL(location) && checksum == "":
			return fmt.Errorf("--%s is a URL, so the BOSH CLI requires a checksum; set --%s-sha1", flag, flag)
		case location == "" && checksum != "":
			return fmt.Errorf("--%s-sha1 requires --%s; set both", flag, flag)
		case checksum != "" && !checksumFormat.MatchString(checksum):
			return fmt.Errorf("--%s-sha1 is neither a SHA1 with 40 hexadecimal digits, nor sha256: with 64, nor sha512: with 128", flag)
		}
	}
	_, err := o.parseVars()
	return err
}

// CheckFiles returns an error if a file that the options name does not exist. create-env would report it only after `up` changed the
// cluster.
func (o Options) CheckFiles() error {
	manifest, err := o.manifestPath()
	if err != nil {
		return err
	}
	manifestFlag := "--manifest"
	if o.BOSHDeployment != "" {
		manifestFlag = "--bosh-deployment"
	}
	files := [][2]string{{"--release", o.Release}, {"--stemcell", o.Stemcell}, {manifestFlag, manifest}}
	for _, opsFile := range o.OpsFiles {
		if !isEmbedded(opsFile) {
			files = append(files, [2]string{"--ops-file", opsFile})
		}
	}
	for _, file := range files {
		flag, path := file[0], strings.TrimPrefix(file[1], "file://")
		if path == "" || isURL(path) {
			continue
		}
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist) && flag == "--ops-file" && !strings.Contains(path, "/"):
			return fmt.Errorf("--ops-file: %s is neither a file nor one of the ops files that this program contains; "+
				"see docs/reference/kubectl-bosh.md", path)
		case errors.Is(err, fs.ErrNotExist) && flag == "--stemcell":
			return fmt.Errorf("--stemcell: %s does not exist; set the path or the URL of a light stemcell, or an image with its registry, "+
				"for example ghcr.io/cloudfoundry/ubuntu-noble-stemcell:VERSION", path)
		case err != nil:
			return fmt.Errorf("%s: %w", flag, err)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s: %s is not a file", flag, path)
		}
	}
	return nil
}

// isEmbedded reports whether an ops file without a directory is one of this program, and not one of the operator.
func isEmbedded(opsFile string) bool {
	_, err := manifests.Files.ReadFile(opsFile)
	return err == nil && !isFile(opsFile)
}

func validateChoice(flag, value string, known ...string) error {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("%s %q is not valid; use one of %s", flag, value, strings.Join(known, ", "))
}

// isURL reports whether location is a URL from which the BOSH CLI downloads.
func isURL(location string) bool {
	return strings.HasPrefix(location, "https://") || strings.HasPrefix(location, "http://")
}

// toURL returns the location as a URL, which manifests require.
func toURL(location string) (string, error) {
	if strings.Contains(location, "://") {
		return location, nil
	}
	path, err := filepath.Abs(location)
	return "file://" + path, err
}

// parseVars returns the variables of --var, and those for the release and the stemcell.
func (o Options) parseVars() (Vars, error) {
	vars := Vars{}
	for name, location := range map[string]string{"kubernetes_cpi_url": o.Release, "stemcell_url": o.Stemcell} {
		if location == "" {
			continue
		}
		var err error
		if vars[name], err = toURL(location); err != nil {
			return nil, err
		}
	}
	for name, sum := range map[string]string{"kubernetes_cpi_sha1": o.ReleaseSHA1, "stemcell_sha1": o.StemcellSHA1} {
		if sum != "" {
			vars[name] = sum
		}
	}
	// Values may be secret. Errors therefore contain neither a value nor the parser's error, which quotes it.
	for i, variable := range o.Vars {
		name, rawValue, found := strings.Cut(variable, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--var number %d is not in the form name=value", i+1)
		}
		var value any
		if yaml.Unmarshal([]byte(rawValue), &value) != nil {
			return nil, fmt.Errorf("--var %s: the value is not valid YAML; quote a string with special characters, as in "+
				"--var \"%s='value'\"", name, name)
		}
		vars[name] = value
	}
	return vars, nil
}

// manifestPath returns the absolute path of the manifest that the flags select, or "" if they select none.
func (o Options) manifestPath() (string, error) {
	switch {
	case o.Manifest != "":
		return filepath.Abs(o.Manifest)
	case o.BOSHDeployment != "":
		return filepath.Abs(filepath.Join(o.BOSHDeployment, "bosh.yml"))
	}
	return "", nil
}

package stemcell

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
)

// Options configure the registries for stemcell images.
type Options struct {
	// RegistryMirrors maps prefixes of image names (a registry, or a registry with a path) to their replacements. The longest matching
	// prefix applies. Names are replaced when an image is used, so that mirrors also apply to stemcells that were uploaded earlier.
	RegistryMirrors map[string]string `json:"registry_mirrors"`
	// Registry is the registry for heavy stemcells.
	Registry Registry `json:"registry"`
}

// Registry is a repository to which the CPI pushes images. Its credentials and CA also apply to the images of light stemcells in the same
// registry.
type Registry struct {
	// Repository is the repository for images, for example registry.example.com/bosh/stemcells. Without it, only light stemcells can
	// be uploaded.
	Repository string `json:"repository"`
	// PullRepository is the name of the same repository for the nodes. The default is Repository.
	PullRepository string `json:"pull_repository"`
	// Username and Password are the credentials for the registry, or for its token server.
	Username string `json:"username"`
	Password Secret `json:"password"`
	// Token is a bearer token for the registry, instead of Username and Password.
	Token Secret `json:"token"`
	// CA contains CA certificates (PEM) to trust, in addition to the system's.
	CA string `json:"ca"`
	// Insecure allows plain HTTP. The certificates of registries with TLS are still verified.
	Insecure bool `json:"insecure"`
	// PullSecret configures the Secret with the nodes' credentials.
	PullSecret PullSecret `json:"pull_secret"`
}

// PullSecret is a Secret of type kubernetes.io/dockerconfigjson, which the CPI creates in the VMs' namespace. Each VM with an image from
// the registry refers to it.
type PullSecret struct {
	// Name is the name of the Secret. Without it the CPI creates no Secret.
	Name string `json:"name"`
	// Username and Password are the nodes' credentials, which need no write access. The default is the registry's Username and Password.
	Username string `json:"username"`
	Password Secret `json:"password"`
}

// Secret is a string that is redacted in logs and messages.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "<redacted>"
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue keeps the secret out of structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// secretNamePattern matches names of Secrets; it is stricter than Kubernetes. Regular expressions are compiled on first use, because the
// program runs once for each call, and few calls are about stemcells.
var secretNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) })

// Validate checks the options. The error names the first property that is missing, invalid, or in conflict with another.
func (o Options) Validate() error {
	for _, from := range slices.Sorted(maps.Keys(o.RegistryMirrors)) {
		const forms = "use a registry (registry.example.com:5000) or a registry with a path (ghcr.io/cloudfoundry)"
		switch {
		case !isImagePrefix(from):
			return errors.New("kubernetes.stemcell.registry_mirrors has a key that is not valid; " + forms)
		case !isImagePrefix(o.RegistryMirrors[from]):
			return fmt.Errorf("kubernetes.stemcell.registry_mirrors[%q] is not valid; %s", from, forms)
		}
	}
	return o.Registry.validate()
}

// isImagePrefix reports whether prefix is a registry, or a registry with a path.
func isImagePrefix(prefix string) bool {
	host, _, _ := strings.Cut(prefix, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return false // a first component without a dot or colon is part of a Docker Hub name
	}
	_, err := name.NewRepository(prefix + "/image")
	return err == nil && !strings.Contains(prefix, "@") && !strings.Contains(prefix, "//")
}

func (r Registry) validate() error {
	if r == (Registry{}) {
		return nil
	}
	if r.Repository == "" {
		return errors.New("kubernetes.stemcell.registry.repository is missing; the other properties of kubernetes.stemcell.registry require it")
	}
	for _, setting := range []struct{ key, value string }{{"repository", r.Repository}, {"pull_repository", r.PullRepository}} {
		if setting.value != "" && !(strings.Contains(setting.value, "/") && isImagePrefix(setting.value)) {
			return fmt.Errorf("kubernetes.stemcell.registry.%s is not valid; use a registry and a repository without a scheme, account or tag, "+
				"for example registry.example.com/bosh/stemcells", setting.key)
		}
	}
	switch {
	case r.Token != "" && (r.Username != "" || r.Password != ""):
		return errors.New("kubernetes.stemcell.registry.token and kubernetes.stemcell.registry.username are mutually exclusive; remove one")
	case (r.Username == "") != (r.Password == ""):
		return errors.New("kubernetes.stemcell.registry.username and kubernetes.stemcell.registry.password must be set together; " +
			"set both or neither")
	}
	if r.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(r.CA)) {
		return errors.New("kubernetes.stemcell.registry.ca contains no certificate; set it to a PEM-encoded certificate " +
			"(-----BEGIN CERTIFICATE-----…)")
	}
	return r.validatePullSecret()
}

func (r Registry) validatePullSecret() error {
	pull := r.PullSecret
	switch {
	case pull.Name == "" && (pull.Username != "" || pull.Password != ""):
		return errors.New("kubernetes.stemcell.registry.pull_secret.name is missing; username and password require it")
	case pull.Name == "":
		return nil
	case !secretNamePattern().MatchString(pull.Name):
		return fmt.Errorf("kubernetes.stemcell.registry.pull_secret.name %q is not a valid Secret name; "+
			"use at most 63 lowercase letters, digits and '-'", pull.Name)
	case (pull.Username == "") != (pull.Password == ""):
		return errors.New("kubernetes.stemcell.registry.pull_secret.username and password must be set together; set both or neither")
	case pull.Username == "" && r.Username == "":
		return errors.New("kubernetes.stemcell.registry.pull_secret requires a username and a password; set them there or in " +
			"kubernetes.stemcell.registry (nodes cannot use a token)")
	}
	return nil
}

// pullRepository returns the name of the repository for the nodes.
func (r Registry) pullRepository() string { return cmp.Or(r.PullRepository, r.Repository) }

// PullSecret returns the name and the content (.dockerconfigjson) of the Secret for pulling this image. The name is "" if no Secret is
// configured for the image's registry.
func (o Options) PullSecret(image string) (string, []byte, error) {
	pull := o.Registry.PullSecret
	if pull.Name == "" || registryHost(image) != registryHost(o.Registry.pullRepository()) {
		return "", nil, nil
	}
	username, password := cmp.Or(pull.Username, o.Registry.Username), cmp.Or(pull.Password, o.Registry.Password)
	content, err := json.Marshal(map[string]any{"auths": map[string]any{
		registryHost(image): map[string]string{
			"username": username, "password": string(password),
			"auth": base64.StdEncoding.EncodeToString([]byte(username + ":" + string(password))),
		},
	}})
	return pull.Name, content, err
}

// registryHost returns the registry in an image name, which is index.docker.io for docker.io, and for a name without a registry.
func registryHost(image string) string {
	reference, err := name.ParseReference(image)
	if err != nil {
		return ""
	}
	return reference.Context().RegistryStr()
}

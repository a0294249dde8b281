package stemcell

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
)

// Options say where images come from and go to.
type Options struct {
	// RegistryMirrors replaces the beginning of images' names: a registry, or a registry and a path, by
	// another. The longest that fits is taken. It is applied whenever an image is used, so that it
	// holds for stemcells uploaded before, too.
	RegistryMirrors map[string]string `json:"registry_mirrors"`
	// Registry is where heavy stemcells are pushed to.
	Registry Registry `json:"registry"`
	// Prefetch has nodes pull images before they are needed. Who knows the cluster checks it.
	Prefetch Prefetch `json:"prefetch"`
}

// Registry is a repository that the CPI may write to. Its credentials and CA are also used to ask the
// same registry for light stemcells' images.
type Registry struct {
	// Repository is where images are pushed, for example registry.example.com/bosh/stemcells. Without
	// it, only light stemcells can be uploaded.
	Repository string `json:"repository"`
	// PullRepository is the same repository by the name that the nodes have for it; Repository by
	// default.
	PullRepository string `json:"pull_repository"`
	// Username and Password are sent to the registry, or to the token server that it names.
	Username string `json:"username"`
	Password Secret `json:"password"`
	// Token is a bearer token, sent to the registry as it is, instead of Username and Password.
	Token Secret `json:"token"`
	// CA are certificates (PEM) that the registry's is checked against, beside the system's.
	CA string `json:"ca"`
	// Insecure allows plain HTTP. Certificates are checked even so.
	Insecure bool `json:"insecure"`
	// PullSecret makes a Secret with which the nodes pull.
	PullSecret PullSecret `json:"pull_secret"`
}

// PullSecret is a Secret of type kubernetes.io/dockerconfigjson that is made in the namespace and
// named by every VM whose image comes from the registry.
type PullSecret struct {
	// Name of the Secret; none is made without it.
	Name string `json:"name"`
	// Username and Password are the nodes' own credentials, which need no right to write; those of the
	// registry by default.
	Username string `json:"username"`
	Password Secret `json:"password"`
}

// Secret is a text that does not show itself in logs and messages.
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

// secretNamePattern is what Kubernetes allows as a Secret's name. Expressions are compiled at their first use: the program runs once for
// each call, and few calls are about stemcells.
var secretNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) })

// Validate names the first property that is missing, malformed or contradicts another.
func (o Options) Validate() error {
	for from, to := range o.RegistryMirrors {
		for _, each := range []string{from, to} {
			if !isImagePrefix(each) {
				return fmt.Errorf("stemcell.registry_mirrors: %q is neither a registry (registry.example.com:5000) "+
					"nor a registry and a path (ghcr.io/cloudfoundry)", each)
			}
		}
	}
	return o.Registry.validate()
}

// isImagePrefix reports whether an image's name can begin with the text.
func isImagePrefix(text string) bool {
	host, _, _ := strings.Cut(text, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return false // a name without a dot, colon or slash is one of Docker Hub's images
	}
	_, err := name.NewRepository(text + "/image")
	return err == nil && !strings.Contains(text, "@") && !strings.Contains(text, "//")
}

func (r Registry) validate() error {
	if r.Repository == "" {
		return r.validateUnused()
	}
	for _, setting := range []struct{ key, value string }{{"repository", r.Repository}, {"pull_repository", r.PullRepository}} {
		if setting.value != "" && !(strings.Contains(setting.value, "/") && isImagePrefix(setting.value)) {
			return fmt.Errorf("stemcell.registry.%s %q is not a registry and a repository, without scheme and tag, "+
				"for example registry.example.com/bosh/stemcells", setting.key, setting.value)
		}
	}
	switch {
	case r.Token != "" && (r.Username != "" || r.Password != ""):
		return errors.New("stemcell.registry.token and stemcell.registry.username are both set: give one of them")
	case (r.Username == "") != (r.Password == ""):
		return errors.New("stemcell.registry.username and stemcell.registry.password belong together: set both or none")
	}
	if r.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(r.CA)) {
		return errors.New("stemcell.registry.ca holds no certificate: it takes the PEM text, -----BEGIN CERTIFICATE-----…")
	}
	return r.validatePullSecret()
}

// validateUnused refuses settings that would silently have no effect.
func (r Registry) validateUnused() error {
	if r != (Registry{}) {
		return errors.New("stemcell.registry.repository is missing although other properties of stemcell.registry are set")
	}
	return nil
}

func (r Registry) validatePullSecret() error {
	pull := r.PullSecret
	switch {
	case pull.Name == "" && (pull.Username != "" || pull.Password != ""):
		return errors.New("stemcell.registry.pull_secret.name is missing although its username or password is set")
	case pull.Name == "":
		return nil
	case !secretNamePattern().MatchString(pull.Name):
		return fmt.Errorf("stemcell.registry.pull_secret.name %q is not a Secret's name: "+
			"use lower-case letters, digits and '-', at most 63", pull.Name)
	case (pull.Username == "") != (pull.Password == ""):
		return errors.New("stemcell.registry.pull_secret.username and password belong together: set both or none")
	case pull.Username == "" && r.Username == "":
		return errors.New("stemcell.registry.pull_secret needs a username and a password, its own or the registry's: nodes cannot use a token")
	}
	return nil
}

// pullRepository is the repository by the name that the nodes have for it.
func (r Registry) pullRepository() string {
	if r.PullRepository != "" {
		return r.PullRepository
	}
	return r.Repository
}

// PullSecret returns the name and content of the Secret with which the nodes pull this image; an empty
// name when they need none. The content is a .dockerconfigjson.
func (o Options) PullSecret(image string) (string, []byte, error) {
	pull := o.Registry.PullSecret
	if pull.Name == "" || registryHost(image) != registryHost(o.Registry.pullRepository()) {
		return "", nil, nil
	}
	username, password := pull.Username, pull.Password
	if username == "" {
		username, password = o.Registry.Username, o.Registry.Password
	}
	content, err := json.Marshal(map[string]any{"auths": map[string]any{
		registryHost(image): map[string]string{
			"username": username, "password": string(password),
			"auth": base64.StdEncoding.EncodeToString([]byte(username + ":" + string(password))),
		},
	}})
	return pull.Name, content, err
}

// registryHost is the registry in an image's name that names one.
func registryHost(image string) string {
	registry, _, _ := strings.Cut(image, "/")
	return registry
}

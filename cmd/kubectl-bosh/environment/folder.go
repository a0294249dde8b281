package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
)

// Names of the files in the folder.
const (
	settingsFile        = "up.yml"
	varsFile            = "vars.yml"
	rightsFile          = "rights.yaml"
	cloudConfigFile     = "cloud-config.yml"
	cloudConfigVarsFile = "cloud-config-vars.yml"
	kubeconfigFile      = "cpi.kubeconfig"
	tokenFile           = "cpi.token"
	directorsFile       = "director.kubeconfig"
	stateFile           = "state.json"
	credentialsFile     = "creds.yml"
	opsFolder           = "ops"
)

// place is where in a file a YAML parser's error is.
var place = regexp.MustCompile(`: line \d+`)

// Folder is where an environment's files are.
type Folder struct{ Path string }

// Settings are what was decided, but for the variables.
type Settings struct {
	Director    string   `json:"director_name"`
	Namespace   string   `json:"namespace"`
	Network     string   `json:"network"`
	Credentials string   `json:"credentials"`
	Manifest    string   `json:"manifest"`
	OpsFiles    []string `json:"ops_files"` // those without a leading slash are the folder's

	// FormerPodSecurity is the value of the namespace's label for Pod Security before `up` changed it, "" for no label; nil if `up` has not.
	FormerPodSecurity *string `json:"former_pod_security,omitempty"`

	// Cluster is the one that the director is in; nil in a folder that an older version of this program has written.
	Cluster *cluster.Identity `json:"cluster,omitempty"`
}

// Vars are the values of the manifest's variables.
type Vars map[string]any

// Text is the value of a variable that is a text; "" without one.
func (v Vars) Text(name string) string {
	text, _ := v[name].(string)
	return text
}

func (f Folder) in(name string) string { return filepath.Join(f.Path, name) }

// Settings are those of the folder; false when it has none yet.
func (f Folder) Settings() (settings Settings, found bool, err error) {
	found, err = f.read(settingsFile, &settings)
	return settings, found, err
}

// Vars are those of the folder; none when it has none yet.
func (f Folder) Vars() (Vars, error) {
	vars := Vars{}
	_, err := f.read(varsFile, &vars)
	return vars, err
}

// Director is the UUID by which the CPI of create-env knows what it has made; "" before it has made anything.
func (f Folder) Director() (string, error) {
	var state struct {
		DirectorID string `json:"director_id"`
	}
	_, err := f.read(stateFile, &state)
	return state.DirectorID, err
}

func (f Folder) read(name string, into any) (found bool, err error) {
	content, err := os.ReadFile(f.in(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return false, fmt.Errorf("cannot parse %s%s", f.in(name), place.FindString(err.Error())) // the rest may quote a secret
	}
	return true, nil
}

// Recognize returns the folder's record of its cluster, complete; an error if the cluster that is reached now is another one.
func (f Folder) Recognize(now cluster.Identity) (*cluster.Identity, error) {
	recorded, err := f.recorded()
	if err != nil || recorded == nil {
		return &now, err
	}
	if why := recorded.Mismatch(now); why != "" {
		return nil, fmt.Errorf("the director of %s is in another cluster: %s was written for %s, and your kubeconfig leads to %s; %s "+
			"(--context and --kubeconfig choose the cluster, --dir chooses another folder)", f.Path, f.in(settingsFile), recorded, now, why)
	}
	if recorded.UID == "" {
		recorded.UID = now.UID
	}
	return recorded, nil
}

// recorded is the cluster that the folder was written for; nil without a folder.
func (f Folder) recorded() (*cluster.Identity, error) {
	settings, _, err := f.Settings()
	if err != nil || settings.Cluster != nil {
		return settings.Cluster, err
	}
	server, err := f.RecordedServer()
	if err != nil || server == nil {
		return nil, err
	}
	return &cluster.Identity{Server: server.Server, Authorities: cluster.Fingerprints(server.CertificateAuthorityData)}, nil
}

// keep writes the file unless there is one, and says what it has done. One that is there and not the same is the
// operator's, or an older release's.
func (f Folder) keep(name string, content []byte) (string, error) {
	there, err := os.ReadFile(f.in(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "written", f.write(name, content)
	case err != nil:
		return "", err
	case string(there) == string(content):
		return "as it was", nil
	}
	return "kept as it is, other than this program would write it (to have that, remove the file and run this again)", nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes the file, which may hold secrets, and its folders.
func (f Folder) write(name string, content []byte) error {
	path := f.in(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Under another name first: a file that was cut short would be taken for the operator's. A former run's file keeps its mode.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// put is write for a value, below lines of comment.
func (f Folder) put(name, comment string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return f.write(name, []byte("# "+strings.ReplaceAll(comment, "\n", "\n# ")+"\n"+string(content)))
}

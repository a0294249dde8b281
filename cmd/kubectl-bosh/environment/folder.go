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
	settingsFile           = "up.yml"
	varsFile               = "vars.yml"
	rightsFile             = "rights.yaml"
	cloudConfigFile        = "cloud-config.yml"
	cloudConfigVarsFile    = "cloud-config-vars.yml"
	kubeconfigFile         = "cpi.kubeconfig"
	tokenFile              = "cpi.token"
	directorKubeconfigFile = "director.kubeconfig"
	stateFile              = "state.json"
	varsStoreFile          = "creds.yml"
	opsFolder              = "ops"
)

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`: line \d+`)

// Folder is the folder with the files of an environment.
type Folder struct{ Path string }

// Settings are the recorded decisions, without the variables.
type Settings struct {
	Director    string   `json:"director_name"`
	Namespace   string   `json:"namespace"`
	Network     string   `json:"network"`
	Credentials string   `json:"credentials"`
	Manifest    string   `json:"manifest"`
	OpsFiles    []string `json:"ops_files"` // relative paths are relative to the folder

	// FormerPodSecurity is the value of cluster.PodSecurityLabel before `up` changed it, "" for no label; nil if `up` has not changed it.
	FormerPodSecurity *string `json:"former_pod_security,omitempty"`

	// Cluster is the director's cluster; nil in a folder of an older version of this program.
	Cluster *cluster.Identity `json:"cluster,omitempty"`
}

// Vars are the variables of the manifest.
type Vars map[string]any

// Text returns the value of a string variable; "" if there is none.
func (v Vars) Text(name string) string {
	text, _ := v[name].(string)
	return text
}

func (f Folder) filePath(name string) string { return filepath.Join(f.Path, name) }

// Settings returns the recorded settings, and whether there are any.
func (f Folder) Settings() (settings Settings, found bool, err error) {
	found, err = f.readYAML(settingsFile, &settings)
	return settings, found, err
}

// Vars returns the recorded variables; there may be no variables.
func (f Folder) Vars() (Vars, error) {
	vars := Vars{}
	_, err := f.readYAML(varsFile, &vars)
	return vars, err
}

// DirectorUUID returns the director UUID of the objects that create-env has created; "" if it has not created any.
func (f Folder) DirectorUUID() (string, error) {
	var state struct {
		DirectorID string `json:"director_id"`
	}
	_, err := f.readYAML(stateFile, &state)
	return state.DirectorID, err
}

func (f Folder) readYAML(name string, into any) (found bool, err error) {
	content, err := os.ReadFile(f.filePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return false, fmt.Errorf("cannot parse %s%s", f.filePath(name), yamlLine.FindString(err.Error())) // the rest may quote a secret
	}
	return true, nil
}

// VerifyCluster fails if the current cluster is not the recorded one. It returns the identity to record.
func (f Folder) VerifyCluster(current cluster.Identity) (*cluster.Identity, error) {
	recorded, err := f.recordedCluster()
	if err != nil || recorded == nil {
		return &current, err
	}
	if mismatch := recorded.Mismatch(current); mismatch != "" {
		return nil, fmt.Errorf("the director of folder %s is in another cluster: %s was written for %s, but your kubeconfig selects %s; %s "+
			"(--context and --kubeconfig select the cluster, --dir selects the folder)",
			f.Path, f.filePath(settingsFile), recorded, current, mismatch)
	}
	if recorded.UID == "" {
		recorded.UID = current.UID
	}
	return recorded, nil
}

// recordedCluster returns the cluster that the folder was written for; nil if there is no folder yet.
func (f Folder) recordedCluster() (*cluster.Identity, error) {
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

// writeIfMissing writes the file unless it exists, and returns the outcome in words. An existing file with other content was edited by
// the operator, or written by another release.
func (f Folder) writeIfMissing(name string, content []byte) (string, error) {
	existing, err := os.ReadFile(f.filePath(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "written", f.write(name, content)
	case err != nil:
		return "", err
	case string(existing) == string(content):
		return "unchanged", nil
	}
	return "kept, although its content differs from the default; to replace it, delete the file and run up again", nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes the file, which may contain secrets, and creates its folders.
func (f Folder) write(name string, content []byte) error {
	path := f.filePath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Rename a complete file: an incomplete one would be taken for an edited one. Remove a file of an interrupted run, for its mode.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// writeYAML writes the value as YAML, after a comment.
func (f Folder) writeYAML(name, comment string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return f.write(name, []byte("# "+strings.ReplaceAll(comment, "\n", "\n# ")+"\n"+string(content)))
}

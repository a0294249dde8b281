package environment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
)

// Names of the files in the directory.
const (
	settingsFile           = "up.yml"
	varsFile               = "vars.yml"
	permissionsFile        = "permissions.yaml"
	limitsFile             = "admission-limits.yaml"
	policyFile             = "admission-policy.yaml"
	networkPolicyFile      = "network-policy.yaml"
	cloudConfigFile        = "cloud-config.yml"
	cloudConfigVarsFile    = "cloud-config-vars.yml"
	kubeconfigFile         = "cpi.kubeconfig"
	tokenFile              = "cpi.token"
	directorKubeconfigFile = "director.kubeconfig"
	stateFile              = "state.json"
	varsStoreFile          = "creds.yml"
	proxyFile              = "proxy.yml"
	lockFile               = "up.lock"
	opsDir                 = "ops"
)

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`: line \d+`)

// Dir is the directory with the files of an environment.
type Dir struct{ Path string }

// Settings are the decisions that `up` records, except the variables of manifests.
type Settings struct {
	Director    string   `json:"director_name"`
	Namespace   string   `json:"namespace"`
	Network     string   `json:"network"`
	Credentials string   `json:"credentials"`
	Manifest    string   `json:"manifest"`  // like OpsFiles
	OpsFiles    []string `json:"ops_files"` // relative paths are relative to the directory

	// PreviousPodSecurity is the value of cluster.PodSecurityLabel before `up` changed it, or "" for no label. It is nil if `up` did not
	// change the label.
	PreviousPodSecurity *string `json:"previous_pod_security,omitempty"`

	// Restricted selects an admission policy and network policies, which limit the CPI's permissions and the traffic of VMs.
	Restricted bool `json:"restricted,omitempty"`

	// PolicyEnabled is set if `up` set cluster.PolicyLabel, which the namespace did not have.
	PolicyEnabled bool `json:"policy_enabled,omitempty"`

	// DeletedDirector is the director UUID before `down` runs delete-env, until it deleted the director's Services, otherwise "".
	DeletedDirector string `json:"deleted_director,omitempty"`

	// Cluster is the director's cluster.
	Cluster *cluster.Identity `json:"cluster,omitempty"`

	// Written are the checksums of the files that `up` wrote, by name. It replaces those that the operator did not edit.
	Written map[string]string `json:"written,omitempty"`
}

// Vars are the variables of the manifest.
type Vars map[string]any

// GetString returns the value of a string variable, or "" if there is none.
func (v Vars) GetString(name string) string {
	value, _ := v[name].(string)
	return value
}

func (d Dir) filePath(name string) string { return filepath.Join(d.Path, name) }

// resolve returns the path of a file that is in the directory, if its path is relative.
func (d Dir) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return d.filePath(path)
}

// ReadSettings returns the recorded settings, and whether they exist. The operator may have edited them.
func (d Dir) ReadSettings() (settings Settings, found bool, err error) {
	found, err = d.readYAML(settingsFile, &settings)
	if err != nil || !found {
		return settings, found, err
	}
	if invalid := validation.IsDNS1123Label(settings.Namespace); len(invalid) > 0 {
		err = fmt.Errorf("namespace %q is not valid: %s", settings.Namespace, strings.Join(invalid, "; "))
	}
	err = errors.Join(err, validateChoice("network", settings.Network, NetworkStatic, NetworkService),
		validateChoice("credentials", settings.Credentials, CredentialsInCluster, CredentialsKubeconfig))
	if err != nil {
		err = fmt.Errorf("%s: %w", d.filePath(settingsFile), err)
	}
	return settings, found, err
}

// ReadVars returns the recorded variables, which may be empty.
func (d Dir) ReadVars() (Vars, error) {
	vars := Vars{}
	_, err := d.readYAML(varsFile, &vars)
	return vars, err
}

// state is the part of the state file of the BOSH CLI that this package reads.
type state struct {
	DirectorID string `json:"director_id"`
	VMCID      string `json:"current_vm_cid"`
	DiskID     string `json:"current_disk_id"`
}

// DirectorUUID returns the director UUID of the objects created by create-env, or "" if there are none.
func (d Dir) DirectorUUID() (string, error) {
	var recorded state
	found, err := d.readYAML(stateFile, &recorded)
	if err == nil && found && recorded.DirectorID == "" {
		// Later runs would not find the VM and the disk. The BOSH CLI writes the UUID first, and empties the file on a full disk.
		err = fmt.Errorf("%s has no director_id, and may have lost the VM and the disk of the director; restore the file from a backup, "+
			"or delete it if they do not exist",
			d.filePath(stateFile))
	}
	return recorded.DirectorID, err
}

// VMCID returns the CID of the VM that create-env created last, or "" if there is none.
func (d Dir) VMCID() (string, error) {
	var recorded state
	_, err := d.readYAML(stateFile, &recorded)
	return recorded.VMCID, err
}

// RemoveState removes the state of a director that is gone.
func (d Dir) RemoveState() error { return os.Remove(d.filePath(stateFile)) }

// CheckFiles returns an error if the manifest, an ops file, or the local file at the URL of one of these variables does not exist.
func (d Dir) CheckFiles(settings Settings, vars Vars, urls ...string) error {
	var errs []error
	check := func(path, source string) {
		if !isFile(path) {
			errs = append(errs, fmt.Errorf("%s does not exist; restore it, or change %s", path, source))
		}
	}
	check(d.resolve(settings.Manifest), "manifest in "+d.filePath(settingsFile))
	for _, opsFile := range settings.OpsFiles {
		check(d.resolve(opsFile), "ops_files in "+d.filePath(settingsFile))
	}
	for _, name := range urls {
		if path, isLocal := strings.CutPrefix(vars.GetString(name), "file://"); isLocal {
			check(path, name+" in "+d.filePath(varsFile))
		}
	}
	return errors.Join(errs...)
}

// HasDisk reports whether create-env created the director's disk.
func (d Dir) HasDisk() (bool, error) {
	var recorded state
	_, err := d.readYAML(stateFile, &recorded)
	return recorded.DiskID != "", err
}

func (d Dir) readYAML(name string, into any) (found bool, err error) {
	content, err := os.ReadFile(d.filePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return false, fmt.Errorf("cannot parse %s%s", d.filePath(name), yamlLine.FindString(err.Error())) // the rest may quote a secret
	}
	return true, nil
}

// VerifyCluster fails if the current cluster is not the recorded one. It returns the identity to record.
func (d Dir) VerifyCluster(current cluster.Identity) (*cluster.Identity, error) {
	settings, _, err := d.ReadSettings()
	recorded := settings.Cluster
	if err != nil || recorded == nil {
		return &current, err
	}
	if mismatch := recorded.Mismatch(current); mismatch != "" {
		return nil, fmt.Errorf("directory %s belongs to a director in another cluster: %s was written for %s, but your kubeconfig selects %s; "+
			"%s (--context and --kubeconfig select the cluster, --dir selects the directory)",
			d.Path, d.filePath(settingsFile), recorded, current, mismatch)
	}
	recorded.UID = cmp.Or(recorded.UID, current.UID)
	return recorded, nil
}

// Outcomes for a file.
const (
	outcomeWritten   = "written"
	outcomeUnchanged = "unchanged"
)

// writeUnlessEdited writes the file, and returns the outcome. It keeps a file that the operator edited: its checksum is not written, the
// checksum of the file that this or an earlier version of the program wrote.
func (d Dir) writeUnlessEdited(f file, written string) (string, error) {
	existing, err := os.ReadFile(d.filePath(f.name))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	case err == nil && string(existing) == string(f.content):
		return outcomeUnchanged, nil
	case err == nil && checksumOf(existing) != written:
		return "kept, because it was edited; to replace it, delete it and run up again", nil
	}
	return outcomeWritten, d.write(f.name, f.content)
}

// write writes the file with mode 0600, because it may contain secrets, and creates its parent directories.
func (d Dir) write(name string, content []byte) error {
	path := d.filePath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Write a temporary file and rename it: a partially written file would look like one that the operator edited. First remove the
	// temporary file of an interrupted run, which may have another mode.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// writeYAML writes the value as YAML, after a comment.
func (d Dir) writeYAML(name, comment string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return d.write(name, []byte("# "+strings.ReplaceAll(comment, "\n", "\n# ")+"\n"+string(content)))
}

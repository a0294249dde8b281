package environment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// Write writes the plan's files to the directory, and returns the outcome for each file. config are the operator's connection settings.
func (d Dir) Write(p *Plan, config *rest.Config) ([]cluster.ReportLine, error) {
	outcomes, err := d.writeVars(p)
	if err != nil {
		return nil, err
	}
	if p.Restricted { // the policy is shared by all directors of the cluster, and fits earlier versions of the CPI
		if err := d.write(policyFile, []byte(manifests.AdmissionPolicy)); err != nil {
			return nil, err
		}
	}
	if err := d.prepareKubeconfigs(p, config); err != nil {
		return nil, err
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	if p.Written == nil {
		p.Written = map[string]string{}
	}
	for _, file := range files {
		outcome, err := d.writeUnlessEdited(file, p.Written[file.name])
		if err != nil {
			return nil, err
		}
		p.Written[file.name] = checksumOf(file.content)
		outcomes = append(outcomes, cluster.ReportLine{Name: file.name, Value: outcome})
	}
	// The settings are last: with them, the next run does not write the files of a new director.
	settings, err := d.writeChangedSettings(p.Settings)
	return append([]cluster.ReportLine{settings}, outcomes...), err
}

// writeVars writes the variables if they changed, and returns the outcome.
func (d Dir) writeVars(p *Plan) ([]cluster.ReportLine, error) {
	vars := cluster.ReportLine{Name: varsFile, Value: outcomeUnchanged}
	if p.exists && len(p.changedVars) == 0 {
		return []cluster.ReportLine{vars}, nil
	}
	vars.Value = outcomeWritten
	return []cluster.ReportLine{vars}, d.writeYAML(varsFile,
		"Variables of the manifest. You may edit them: the next run of `kubectl bosh up` uses them.", p.Vars)
}

// writeChangedSettings writes the settings if they changed, and returns the outcome.
func (d Dir) writeChangedSettings(settings Settings) (cluster.ReportLine, error) {
	line := cluster.ReportLine{Name: settingsFile, Value: outcomeUnchanged}
	recorded, found, err := d.ReadSettings()
	if err != nil || found && equality.Semantic.DeepEqual(recorded, settings) {
		return line, err
	}
	line.Value = outcomeWritten
	return line, d.WriteSettings(settings)
}

// WriteSettings writes the recorded decisions, without the variables.
func (d Dir) WriteSettings(settings Settings) error {
	return d.writeYAML(settingsFile, "Decisions of `kubectl bosh up`. You may edit them: the next run uses them.", settings)
}

type file struct {
	name    string
	content []byte
}

// checksumOf returns the SHA-256 of the content, in hexadecimal.
func checksumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// files returns the files that are written unless the operator edited them: ops files, permissions, network policies, and for a new
// director the cloud config.
func (p *Plan) files() ([]file, error) {
	var files []file
	for _, name := range p.OpsFiles {
		if !strings.HasPrefix(name, opsDir+"/") {
			continue
		}
		content, err := manifests.Files.ReadFile(path.Base(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the operator's own
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, content})
	}
	files = append(files, file{permissionsFile, []byte(p.renderPermissions())})
	if p.Restricted {
		files = append(files, file{networkPolicyFile, []byte(withNamespace(manifests.NetworkPolicies, p.Namespace))})
	}
	if p.exists {
		return files, nil
	}
	config, err := p.cloudConfigFiles()
	return append(files, config...), err
}

package environment

import (
	"errors"
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
	outcomes, err := d.writeSettings(p)
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
	for _, file := range files {
		outcome, err := d.writeIfAbsent(file.name, file.content)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, cluster.ReportLine{Name: file.name, Value: outcome})
	}
	return outcomes, nil
}

// writeSettings writes the settings and the variables if they changed, and returns the outcome for both files.
func (d Dir) writeSettings(p *Plan) ([]cluster.ReportLine, error) {
	recorded, found, err := d.ReadSettings()
	if err != nil {
		return nil, err
	}
	settings := cluster.ReportLine{Name: settingsFile, Value: outcomeUnchanged}
	if !found || !equality.Semantic.DeepEqual(recorded, p.Settings) {
		settings.Value = outcomeWritten
		if err := d.WriteSettings(p.Settings); err != nil {
			return nil, err
		}
	}
	vars := cluster.ReportLine{Name: varsFile, Value: outcomeUnchanged}
	if !found || len(p.changedVars) > 0 {
		vars.Value = outcomeWritten
		err = d.writeYAML(varsFile,
			"Variables of the manifest. You may edit them: the next run of `kubectl bosh up` uses them.", p.Vars)
	}
	return []cluster.ReportLine{settings, vars}, err
}

// WriteSettings writes the recorded decisions, without the variables.
func (d Dir) WriteSettings(settings Settings) error {
	return d.writeYAML(settingsFile, "Decisions of `kubectl bosh up`. You may edit them: the next run uses them.", settings)
}

type file struct {
	name    string
	content []byte
}

// files returns the files that are written only if they do not exist: ops files, permissions, network policies, and for a new director
// the cloud config.
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

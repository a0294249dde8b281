package environment

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// Write writes the plan's files to the folder, and returns the outcome for each. config are the connection settings of the operator.
func (f Folder) Write(p *Plan, config *rest.Config) ([]cluster.Fact, error) {
	var outcomes []cluster.Fact
	if err := f.writeSettings(p); err != nil {
		return nil, err
	}
	if err := f.prepareKubeconfigs(p, config); err != nil {
		return nil, err
	}
	outcomes = append(outcomes,
		cluster.Fact{Name: settingsFile, Value: "recorded decisions"}, cluster.Fact{Name: varsFile, Value: "variables of the manifest"})
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		outcome, err := f.writeIfMissing(file.name, file.content)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, cluster.Fact{Name: file.name, Value: outcome})
	}
	return outcomes, nil
}

// writeSettings writes the settings and the variables if they have changed.
func (f Folder) writeSettings(p *Plan) error {
	recorded, found, err := f.Settings()
	if err != nil {
		return err
	}
	if !found || !equality.Semantic.DeepEqual(recorded, p.Settings) {
		if err := f.WriteSettings(p.Settings); err != nil {
			return err
		}
	}
	if found && len(p.changedVars) == 0 {
		return nil
	}
	return f.writeYAML(varsFile,
		"Variables of the manifest. You may edit them: the next run of `kubectl bosh up` uses them.", p.Vars)
}

// WriteSettings writes the recorded decisions, without the variables.
func (f Folder) WriteSettings(settings Settings) error {
	return f.writeYAML(settingsFile, "Decisions of `kubectl bosh up`. You may edit them: the next run uses them.", settings)
}

type file struct {
	name    string
	content []byte
}

// files returns the files that are written only if they are missing: ops files, rights, and for a new director the cloud config.
func (p *Plan) files() ([]file, error) {
	var files []file
	for _, name := range p.OpsFiles {
		if !strings.HasPrefix(name, opsFolder+"/") {
			continue
		}
		content, err := manifests.Files.ReadFile(path.Base(name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, content})
	}
	files = append(files, file{rightsFile, []byte(p.renderRights())})
	if p.exists {
		return files, nil
	}
	config, err := p.cloudConfig()
	return append(files, config...), err
}

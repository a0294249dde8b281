package environment

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

// Write puts the plan's files into the folder, and returns what became of each. config is how the operator reaches the API
// server.
func (f Folder) Write(p *Plan, config *rest.Config) ([]cluster.Fact, error) {
	var said []cluster.Fact
	if err := f.writeSettings(p); err != nil {
		return nil, err
	}
	if err := f.prepareKubeconfigs(p, config); err != nil {
		return nil, err
	}
	said = append(said,
		cluster.Fact{What: settingsFile, Said: "what was decided"}, cluster.Fact{What: varsFile, Said: "the manifest's variables"})
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	for _, each := range files {
		outcome, err := f.keep(each.name, each.content)
		if err != nil {
			return nil, err
		}
		said = append(said, cluster.Fact{What: each.name, Said: outcome})
	}
	return said, nil
}

// writeSettings leaves the files alone where nothing in them is new.
func (f Folder) writeSettings(p *Plan) error {
	before, found, err := f.Settings()
	if err != nil {
		return err
	}
	if !found || !equality.Semantic.DeepEqual(before, p.Settings) {
		if err := f.WriteSettings(p.Settings); err != nil {
			return err
		}
	}
	if found && len(p.changed) == 0 {
		return nil
	}
	return f.put(varsFile, "Variables for the manifest. They are yours to change: the next run of `kubectl bosh up` goes by them.", p.Vars)
}

// WriteSettings writes what was decided, but for the variables.
func (f Folder) WriteSettings(settings Settings) error {
	return f.put(settingsFile, "What `kubectl bosh up` has decided. It is yours to change: the next run goes by it.", settings)
}

type file struct {
	name    string
	content []byte
}

// files are those that are written once: ops files, the cloud config, and the rights.
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
	files = append(files, file{rightsFile, []byte(p.rights())})
	if p.again {
		return files, nil
	}
	config, err := p.cloudConfig()
	return append(files, config...), err
}

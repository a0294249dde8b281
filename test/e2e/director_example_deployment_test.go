//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// Directories of the examples and of their release.
const (
	examplesDir       = "../../manifests/examples"
	exampleReleaseDir = examplesDir + "/release"
)

// exampleDeployment is a deployment of the examples, as created by a director. Its jobs use one package.
type exampleDeployment struct {
	*directorEnv
	deployment, pkg string
	compiled        compiledPackage // of pkg
}

func newExampleDeployment(ctx context.Context, deployment, pkg string) *exampleDeployment {
	GinkgoHelper()
	return &exampleDeployment{directorEnv: newDirectorEnv(ctx, "E2E_STEMCELL"), deployment: deployment, pkg: pkg}
}

// compileProgram makes the VM compile the example's package. The package contains a program of the same name for each architecture.
func (e *exampleDeployment) compileProgram(ctx context.Context, vm *testVM, program string) {
	GinkgoHelper()
	binary, err := os.ReadFile(program)
	Expect(err).NotTo(HaveOccurred())
	packaging, err := os.ReadFile(filepath.Join(exampleReleaseDir, "packages", e.pkg, "packaging"))
	Expect(err).NotTo(HaveOccurred())
	e.compiled = e.compilePackage(ctx, vm, e.pkg, map[string]string{
		"packaging": string(packaging), e.pkg + "/" + e.pkg + "-" + runtime.GOARCH: string(binary)})
}

// exampleInstance contains the properties of an instance that the templates of its job can read.
type exampleInstance struct {
	job, group, id, address string
	links                   map[string]any
}

// renderFiles returns the files of the job's archive by path.
func (i exampleInstance) renderFiles(ctx context.Context) map[string]string {
	GinkgoHelper()
	instance, err := json.Marshal(map[string]any{
		"spec": map[string]any{"name": i.group, "id": i.id, "address": i.address}, "links": i.links,
	})
	Expect(err).NotTo(HaveOccurred())
	jobDir := filepath.Join(exampleReleaseDir, "jobs", i.job)
	command := exec.CommandContext(ctx, "ruby", "../manifests/testdata/render.rb", jobDir, string(instance))
	command.Stdin, command.Stderr = bytes.NewReader([]byte("{}")), GinkgoWriter
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	files, archived := map[string]string{}, map[string]string{}
	Expect(json.Unmarshal(out, &files)).To(Succeed())
	for path, content := range files {
		archived[i.job+"/"+path] = content
	}
	monit, err := os.ReadFile(filepath.Join(jobDir, "monit"))
	Expect(err).NotTo(HaveOccurred())
	archived[i.job+"/monit"] = string(monit)
	return archived
}

// exampleSpec returns the apply spec of an instance with one job of the examples.
func (e *exampleDeployment) exampleSpec(ctx context.Context, i exampleInstance) map[string]any {
	GinkgoHelper()
	return e.applySpec(instanceSpec{deployment: e.deployment, group: i.group, id: i.id, job: i.job, address: i.address,
		packages: map[string]compiledPackage{e.pkg: e.compiled}, files: i.renderFiles(ctx)})
}

// exampleInstanceCounts returns the number of instances of each group in an example's manifest.
func exampleInstanceCounts(deployment string) map[string]int {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(examplesDir, deployment+".yml"))
	Expect(err).NotTo(HaveOccurred())
	var manifest struct {
		Groups []struct {
			Name      string `json:"name"`
			Instances int    `json:"instances"`
		} `json:"instance_groups"`
	}
	Expect(yaml.Unmarshal(raw, &manifest)).To(Succeed())
	instances := map[string]int{}
	for _, group := range manifest.Groups {
		instances[group.Name] = group.Instances
	}
	return instances
}

// vmExtensions returns the cloud_properties of these vm_extensions of the cloud config, merged.
func vmExtensions(names ...string) map[string]any {
	GinkgoHelper()
	raw, err := os.ReadFile("../../manifests/cloud-config.yml")
	Expect(err).NotTo(HaveOccurred())
	var config struct {
		Extensions []struct {
			Name       string         `json:"name"`
			Properties map[string]any `json:"cloud_properties"`
		} `json:"vm_extensions"`
	}
	Expect(yaml.Unmarshal(raw, &config)).To(Succeed())
	merged, found := map[string]any{}, 0
	for _, extension := range config.Extensions {
		if slices.Contains(names, extension.Name) {
			maps.Copy(merged, extension.Properties)
			found++
		}
	}
	Expect(found).To(Equal(len(names)))
	return merged
}

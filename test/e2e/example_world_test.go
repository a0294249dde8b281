//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// Where the examples are, and their release.
const (
	examples       = "../../manifests/examples"
	exampleRelease = examples + "/release"
)

// example is a deployment of the examples, as a director would have it, whose jobs have one package.
type example struct {
	*directed
	deployment, pkg string
	compiled        compiled // the package
}

func newExample(ctx context.Context, deployment, pkg string) *example {
	GinkgoHelper()
	return &example{directed: newDirected(ctx, "E2E_STEMCELL"), deployment: deployment, pkg: pkg}
}

// compileProgram has the machine compile the example's package, which is a program of its name.
func (e *example) compileProgram(ctx context.Context, m *machine, program string) {
	GinkgoHelper()
	binary, err := os.ReadFile(program)
	Expect(err).NotTo(HaveOccurred())
	packaging, err := os.ReadFile(filepath.Join(exampleRelease, "packages", e.pkg, "packaging"))
	Expect(err).NotTo(HaveOccurred())
	e.compiled = e.compilePackage(ctx, m, e.pkg, map[string]string{"packaging": string(packaging), e.pkg + "/" + e.pkg: string(binary)})
}

// exampleInstance is what a template of a job sees of its instance.
type exampleInstance struct {
	job, group, id, address string
	links                   map[string]any
}

// rendered are the files of the job's archive.
func (i exampleInstance) rendered(ctx context.Context) map[string]string {
	GinkgoHelper()
	instance, err := json.Marshal(map[string]any{
		"spec": map[string]any{"name": i.group, "id": i.id, "address": i.address}, "links": i.links,
	})
	Expect(err).NotTo(HaveOccurred())
	folder := filepath.Join(exampleRelease, "jobs", i.job)
	command := exec.CommandContext(ctx, "ruby", "../manifests/testdata/render.rb", folder, string(instance))
	command.Stdin, command.Stderr = bytes.NewReader([]byte("{}")), GinkgoWriter
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	files, packed := map[string]string{}, map[string]string{}
	Expect(json.Unmarshal(out, &files)).To(Succeed())
	for path, content := range files {
		packed[i.job+"/"+path] = content
	}
	monit, err := os.ReadFile(filepath.Join(folder, "monit"))
	Expect(err).NotTo(HaveOccurred())
	packed[i.job+"/monit"] = string(monit)
	return packed
}

// exampleSpec is the spec of an instance with one job of the examples.
func (e *example) exampleSpec(ctx context.Context, i exampleInstance) map[string]any {
	GinkgoHelper()
	return e.spec(instance{deployment: e.deployment, group: i.group, id: i.id, job: i.job, address: i.address,
		packages: map[string]compiled{e.pkg: e.compiled}, files: i.rendered(ctx)})
}

// exampleInstances are how many instances each group of an example's manifest has.
func exampleInstances(deployment string) map[string]int {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(examples, deployment+".yml"))
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

// exampleExtension are the cloud_properties of a vm_extension of the examples.
func exampleExtension(name string) map[string]any {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(examples, "cloud-config.yml"))
	Expect(err).NotTo(HaveOccurred())
	var operations []struct {
		Value struct {
			Name       string         `json:"name"`
			Properties map[string]any `json:"cloud_properties"`
		} `json:"value"`
	}
	Expect(yaml.Unmarshal(raw, &operations)).To(Succeed())
	for _, each := range operations {
		if each.Value.Name == name {
			return each.Value.Properties
		}
	}
	Fail("the examples have no vm_extension " + name)
	return nil
}

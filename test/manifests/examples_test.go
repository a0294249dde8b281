package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const exampleJobsDir = manifestsDir + "/examples/release/jobs"

// exampleJob is the spec of a job in the release of the examples.
type exampleJob struct {
	Name      string            `json:"name"`
	Templates map[string]string `json:"templates"`
	Provides  []jobLink         `json:"provides"`
	Consumes  []jobLink         `json:"consumes"`
}

type jobLink struct{ Name, Type string }

func readJobSpec(name string) exampleJob {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(exampleJobsDir, name, "spec"))
	Expect(err).NotTo(HaveOccurred())
	var spec exampleJob
	Expect(yaml.Unmarshal(raw, &spec)).To(Succeed())
	return spec
}

// renderExample renders a job's templates for the first of three instances. Each link contains all three instances.
func renderExample(ctx context.Context, job exampleJob) renderedFiles {
	GinkgoHelper()
	instances := []any{}
	for _, address := range []string{"10.0.0.11", "10.0.0.12", "10.0.0.13"} {
		instances = append(instances, map[string]any{"id": "id-" + address, "address": address})
	}
	links := map[string]any{}
	for _, link := range job.Consumes {
		links[link.Name] = map[string]any{"instances": instances, "properties": map[string]any{"client_port": 2379, "port": 8080}}
	}
	spec := map[string]any{"name": "group", "id": "id-10.0.0.11", "address": "10.0.0.11"}
	instance, err := json.Marshal(map[string]any{"spec": spec, "links": links})
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, "ruby", fixturePath("render.rb"), filepath.Join(exampleJobsDir, job.Name), string(instance))
	command.Stdin = bytes.NewReader([]byte("{}"))
	command.Stderr = GinkgoWriter
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	var rendered renderedFiles
	Expect(json.Unmarshal(out, &rendered)).To(Succeed())
	return rendered
}

var _ = Describe("The examples", func() {
	for _, name := range []string{"etcd.yml", "routers.yml"} {
		It("use only names that the cloud config and the release define: "+name, func(ctx context.Context) {
			config := cloudConfig("cloud-config.yml", cloudConfigNetworks[0], zonesOption).interpolate(ctx)
			manifest := template{base: manifestPath("examples/" + name)}.interpolate(ctx)
			release := nameOf(lookup(manifest, "releases").([]any)[0])
			provided, consumed := []string{}, []string{}
			for _, element := range lookup(manifest, "instance_groups").([]any) {
				group := element.(map[string]any)
				Expect(namesOf(config, "vm_types")).To(ContainElement(group["vm_type"]))
				Expect(namesOf(config, "azs")).To(ContainElements(group["azs"]))
				if group["vm_extensions"] != nil {
					Expect(namesOf(config, "vm_extensions")).To(ContainElements(group["vm_extensions"]))
				}
				if group["persistent_disk_type"] != nil {
					Expect(namesOf(config, "disk_types")).To(ContainElement(group["persistent_disk_type"]))
				}
				for _, network := range namesOf(group, "networks") {
					Expect(namesOf(config, "networks")).To(ContainElement(network))
				}
				for _, job := range group["jobs"].([]any) {
					Expect(lookup(job, "release")).To(Equal(release))
					for _, link := range readJobSpec(nameOf(job)).Provides {
						provided = append(provided, link.Type)
					}
					for _, link := range readJobSpec(nameOf(job)).Consumes {
						consumed = append(consumed, link.Type)
					}
				}
			}
			Expect(consumed).NotTo(BeEmpty())
			Expect(provided).To(ContainElements(slices.Compact(consumed)))
		})
	}

	It("have jobs with templates that render to valid shell scripts", func(ctx context.Context) {
		specs, err := filepath.Glob(exampleJobsDir + "/*/spec")
		Expect(err).NotTo(HaveOccurred())
		Expect(specs).NotTo(BeEmpty())
		for _, spec := range specs {
			job := readJobSpec(filepath.Base(filepath.Dir(spec)))
			for path, content := range renderExample(ctx, job) {
				check := exec.CommandContext(ctx, "bash", "-n")
				check.Stdin = bytes.NewReader([]byte(content))
				out, err := check.CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s of %s: %s\n%s", path, job.Name, out, content)
			}
		}
	})

	It("configure each member of the etcd cluster with the addresses of all members", func(ctx context.Context) {
		Expect(renderExample(ctx, readJobSpec("etcd"))["bin/ctl"]).To(ContainSubstring("--initial-cluster " +
			"'id-10.0.0.11=http://10.0.0.11:2380,id-10.0.0.12=http://10.0.0.12:2380,id-10.0.0.13=http://10.0.0.13:2380'"))
	})
})

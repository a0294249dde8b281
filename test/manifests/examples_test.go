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

const exampleJobs = published + "/examples/release/jobs"

func exampleCloudConfig(choices ...part) template {
	return cloudConfig("cloud-config.yml", append(choices, part{ops: []string{own("examples/cloud-config.yml")}})...)
}

// exampleJob is the spec of a job of the examples' release.
type exampleJob struct {
	Name      string            `json:"name"`
	Templates map[string]string `json:"templates"`
	Provides  []linkOfJob       `json:"provides"`
	Consumes  []linkOfJob       `json:"consumes"`
}

type linkOfJob struct{ Name, Type string }

func jobOf(name string) exampleJob {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(exampleJobs, name, "spec"))
	Expect(err).NotTo(HaveOccurred())
	var spec exampleJob
	Expect(yaml.Unmarshal(raw, &spec)).To(Succeed())
	return spec
}

// renderExample renders a job's templates for one of three instances that all links name.
func renderExample(ctx context.Context, job exampleJob) files {
	GinkgoHelper()
	instances := []any{}
	for _, address := range []string{"10.0.0.11", "10.0.0.12", "10.0.0.13"} {
		instances = append(instances, map[string]any{"id": "id-" + address, "address": address})
	}
	links := map[string]any{}
	for _, link := range job.Consumes {
		links[link.Name] = map[string]any{"instances": instances, "properties": map[string]any{"client_port": 2379, "port": 8080}}
	}
	instance, err := json.Marshal(map[string]any{"spec": map[string]any{"name": "group", "id": "id-10.0.0.11", "address": "10.0.0.11"}, "links": links})
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, "ruby", fixture("render.rb"), filepath.Join(exampleJobs, job.Name), string(instance))
	command.Stdin = bytes.NewReader([]byte("{}"))
	command.Stderr = GinkgoWriter
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	var made files
	Expect(json.Unmarshal(out, &made)).To(Succeed())
	return made
}

var _ = Describe("The examples", func() {
	AfterEach(emptyNamespace)

	It("add to the cloud config what the CPI makes machines of", func(ctx context.Context) {
		config := exampleCloudConfig(networking[0]).interpolate(ctx)
		expectConsistent(config)
		for _, each := range at(config, "vm_extensions").([]any) {
			expectProperties(each.(map[string]any)["cloud_properties"], "vm")
		}
		expectMachines(ctx, config)
	}, NodeTimeout(longTest))

	for _, name := range []string{"etcd.yml", "routers.yml"} {
		It("name what the cloud config and the release have: "+name, func(ctx context.Context) {
			config := exampleCloudConfig(networking[0], zones).interpolate(ctx)
			manifest := template{base: own("examples/" + name), vars: []string{"stemcell_os"}}.interpolate(ctx)
			release := named(at(manifest, "releases").([]any)[0])
			provided, consumed := []string{}, []string{}
			for _, each := range at(manifest, "instance_groups").([]any) {
				group := each.(map[string]any)
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
					Expect(at(job, "release")).To(Equal(release))
					for _, link := range jobOf(named(job)).Provides {
						provided = append(provided, link.Type)
					}
					for _, link := range jobOf(named(job)).Consumes {
						consumed = append(consumed, link.Type)
					}
				}
			}
			Expect(consumed).NotTo(BeEmpty())
			Expect(provided).To(ContainElements(slices.Compact(consumed)))
		})
	}

	It("have jobs whose templates are scripts that a shell can read", func(ctx context.Context) {
		folders, err := filepath.Glob(exampleJobs + "/*/spec")
		Expect(err).NotTo(HaveOccurred())
		Expect(folders).NotTo(BeEmpty())
		for _, folder := range folders {
			job := jobOf(filepath.Base(filepath.Dir(folder)))
			for path, content := range renderExample(ctx, job) {
				check := exec.CommandContext(ctx, "bash", "-n")
				check.Stdin = bytes.NewReader([]byte(content))
				out, err := check.CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s of %s: %s\n%s", path, job.Name, out, content)
			}
		}
	})

	It("tell each member of the cluster all others", func(ctx context.Context) {
		Expect(renderExample(ctx, jobOf("etcd"))["bin/ctl"]).To(ContainSubstring("--initial-cluster " +
			"'id-10.0.0.11=http://10.0.0.11:2380,id-10.0.0.12=http://10.0.0.12:2380,id-10.0.0.13=http://10.0.0.13:2380'"))
	})
})

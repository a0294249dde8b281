package manifests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// variableValues are the values of the variables in all files.
var variableValues = map[string]any{
	"director_name": "kubernetes", "internal_ip": "10.1.128.6", "internal_cidr": "10.1.128.0/17", "internal_gw": "10.1.128.1",
	"namespace":          namespace,
	"kubernetes_cpi_url": "", "kubernetes_cpi_sha1": "", "stemcell_url": "", "stemcell_sha1": "", "releases": "", // see createReleases
	"director_kubeconfig": "", // see startCluster
	"node_address":        "192.0.2.10", "node_port_agent": 30868, "node_port_director": 30555, "external_ip": "203.0.113.7",
	"registry_repository": "registry.example.com/bosh/stemcells", "registry_username": "bosh",
	"registry_password": "secret",
	"external_db_host":  "db.example.com", "bucket_name": "director",
	"address_annotations": []any{map[string]any{"name": "ovn.kubernetes.io/ip_address", "value": "{{index .IPs 0}}"}},
	"network_range":       "10.1.128.0/17", "network_gateway": "10.1.128.1", "network_reserved": []string{"10.1.128.1-10.1.128.20"},
	"cluster_dns": "10.246.0.10", "cluster_domain": "cluster.local", "zone1": "zone-a", "zone2": "zone-b", "zone3": "zone-c",
	"cell_memory_mb": 28000, "cell_disk_mb": 80000,
	"east_kubeconfig": "", "east_namespace": "bosh", "west_kubeconfig": "", "west_namespace": "bosh-west",
}

// template is a manifest or config for the BOSH CLI, with ops files and the names of its variables.
type template struct {
	base string
	ops  []string
	vars []string
	// values override variableValues.
	values map[string]any
}

// manifestPath returns the path of a file in manifests/.
func manifestPath(name string) string { return filepath.Join(manifestsDir, name) }

// fixturePath returns the path of a fixture. A fixture replaces a file of another project.
func fixturePath(name string) string { return filepath.Join(fixturesDir, name) }

// valueOf returns the value of a variable. Kubeconfigs are available only after startCluster.
func (t template) valueOf(name string) any {
	GinkgoHelper()
	if value, ok := t.values[name]; ok {
		return value
	}
	switch name {
	case "kubeconfig", "director_kubeconfig", "east_kubeconfig", "west_kubeconfig":
		return kubeconfig
	case "registry_ca":
		config, err := clientcmd.Load([]byte(kubeconfig))
		Expect(err).NotTo(HaveOccurred())
		return string(config.Clusters[config.Contexts[config.CurrentContext].Cluster].CertificateAuthorityData)
	}
	value, ok := variableValues[name]
	Expect(ok).To(BeTrue(), "variableValues does not contain %s", name)
	return value
}

// arguments returns the arguments for a command of the BOSH CLI that uses the template. The files with variables and credentials are in
// dir.
func (t template) arguments(dir string) []string {
	GinkgoHelper()
	values := map[string]any{}
	for _, name := range t.vars {
		values[name] = t.valueOf(name)
	}
	varsFile, varsStore := filepath.Join(dir, "vars.yml"), filepath.Join(dir, "creds.yml")
	writeYAML(varsFile, values)
	arguments := []string{t.base, "--vars-file", varsFile, "--vars-store", varsStore}
	for _, opsFile := range t.ops {
		arguments = append(arguments, "--ops-file", opsFile)
	}
	return arguments
}

// interpolate returns the YAML that the BOSH CLI renders. The test fails if a variable is missing or unused.
func (t template) interpolate(ctx context.Context) map[string]any {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	t.storeCredentials(ctx, dir)
	output := bosh(ctx, append([]string{"interpolate", "--var-errs", "--var-errs-unused"}, t.arguments(dir)...)...)
	var manifest map[string]any
	Expect(yaml.Unmarshal(output, &manifest)).To(Succeed())
	return manifest
}

// credentials are the values of all variables that the BOSH CLI generates. They are generated only once, because the generation of keys
// is slow.
var credentials map[string]any

func generateCredentials(ctx context.Context) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	for _, source := range []template{{base: fixturePath("bosh.yml"), ops: userOptions[1].ops}, {base: fixturePath("dns.yml")}} {
		bosh(ctx, append([]string{"interpolate", "--var", "internal_ip=192.0.2.1"}, source.arguments(dir)...)...)
	}
	content, err := os.ReadFile(filepath.Join(dir, "creds.yml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.Unmarshal(content, &credentials)).To(Succeed())
}

// storeCredentials writes the credentials that the template uses to dir.
func (t template) storeCredentials(ctx context.Context, dir string) {
	GinkgoHelper()
	arguments := []string{"interpolate", t.base}
	for _, opsFile := range t.ops {
		arguments = append(arguments, "--ops-file", opsFile)
	}
	var manifest struct {
		Variables []struct{ Name string }
	}
	Expect(yaml.Unmarshal(bosh(ctx, arguments...), &manifest)).To(Succeed())
	stored := map[string]any{}
	for _, variable := range manifest.Variables {
		Expect(credentials).To(HaveKey(variable.Name))
		stored[variable.Name] = credentials[variable.Name]
	}
	writeYAML(filepath.Join(dir, "creds.yml"), stored)
}

// bosh runs the BOSH CLI and returns its standard output. The test fails if the command fails.
func bosh(ctx context.Context, arguments ...string) []byte {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "bosh", append([]string{"--non-interactive"}, arguments...)...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	Expect(command.Run()).To(Succeed(), "bosh %q: %s%s", arguments, stdout.Bytes(), stderr.Bytes())
	return stdout.Bytes()
}

func writeYAML(path string, content any) {
	GinkgoHelper()
	raw, err := yaml.Marshal(content)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
}

// lookup returns the value at the path. The path consists of keys of hashes and names of list elements.
func lookup(value any, path ...string) any {
	GinkgoHelper()
	for i, key := range path {
		switch container := value.(type) {
		case map[string]any:
			Expect(container).To(HaveKey(key), "%q", path[:i+1])
			value = container[key]
		case []any:
			index := slices.IndexFunc(container, func(element any) bool { return nameOf(element) == key })
			Expect(index).To(BeNumerically(">=", 0), "%q", path[:i+1])
			value = container[index]
		default:
			Fail(fmt.Sprintf("%q is neither a hash nor a list", path[:i]))
		}
	}
	return value
}

// nameOf returns the name of a list element, or "".
func nameOf(element any) string {
	hash, _ := element.(map[string]any)
	name, _ := hash["name"].(string)
	return name
}

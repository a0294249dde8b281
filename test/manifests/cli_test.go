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
	"sigs.k8s.io/yaml"
)

// variableValues are what the variables of all files are given.
var variableValues = map[string]any{
	"stemcell_os":   "ubuntu-jammy",
	"director_name": "kubernetes", "internal_ip": "10.1.128.6", "internal_cidr": "10.1.128.0/17", "internal_gw": "10.1.128.1",
	"namespace":          namespace,
	"kubernetes_cpi_url": "", "kubernetes_cpi_sha1": "", "stemcell_url": "", "stemcell_sha1": "", "releases": "", // see makeReleases
	"director_kubeconfig": "", // see startCluster
	"node_address":        "192.0.2.10", "node_port_agent": 30868, "node_port_director": 30555, "external_ip": "203.0.113.7",
	"registry_repository": "registry.example.com/bosh/stemcells", "registry_username": "bosh",
	"registry_password": "secret", "registry_ca": "",
	"external_db_host": "db.example.com", "bucket_name": "director",
	"address_annotations": []any{map[string]any{"name": "ovn.kubernetes.io/ip_address", "value": "{{index .IPs 0}}"}},
	"network_range":       "10.1.128.0/17", "network_gateway": "10.1.128.1", "network_reserved": []string{"10.1.128.1-10.1.128.20"},
	"cluster_dns": "10.246.0.10", "cluster_domain": "cluster.local", "zone1": "zone-a", "zone2": "zone-b", "zone3": "zone-c",
	"east_kubeconfig": "", "east_namespace": "bosh", "west_kubeconfig": "", "west_namespace": "bosh-west",
}

// template is a file for the CLI, with ops files and the variables that are given for it.
type template struct {
	base string
	ops  []string
	vars []string
	// other values than those above
	values map[string]any
}

// manifestPath is the path of one of the files that are tested, and fixture that of one which stands for another project's.
func manifestPath(name string) string { return filepath.Join(manifestsDir, name) }
func fixturePath(name string) string  { return filepath.Join(fixturesDir, name) }

// valueOf is what the variable is given; the kubeconfigs are known once the cluster runs.
func (t template) valueOf(name string) any {
	GinkgoHelper()
	if given, ok := t.values[name]; ok {
		return given
	}
	switch name {
	case "kubeconfig", "director_kubeconfig", "east_kubeconfig", "west_kubeconfig":
		return kubeconfig
	}
	given, ok := variableValues[name]
	Expect(ok).To(BeTrue(), "the tests have no value for the variable %s", name)
	return given
}

// arguments are those by which any command of the CLI takes the template. Credentials are put into a file of their own
// in the folder, as those of an operator are.
func (t template) arguments(folder string) []string {
	GinkgoHelper()
	given := map[string]any{}
	for _, name := range t.vars {
		given[name] = t.valueOf(name)
	}
	vars, store := filepath.Join(folder, "vars.yml"), filepath.Join(folder, "creds.yml")
	writeYAML(vars, given)
	arguments := []string{t.base, "--vars-file", vars, "--vars-store", store}
	for _, opsFile := range t.ops {
		arguments = append(arguments, "--ops-file", opsFile)
	}
	return arguments
}

// interpolate returns the YAML that the CLI makes of the template. Each variable has to be given, and each that is given has
// to be needed.
func (t template) interpolate(ctx context.Context) map[string]any {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	t.storeCredentials(ctx, folder)
	printed := bosh(ctx, append([]string{"interpolate", "--var-errs", "--var-errs-unused"}, t.arguments(folder)...)...)
	var manifest map[string]any
	Expect(yaml.Unmarshal(printed, &manifest)).To(Succeed())
	return manifest
}

// credentials are values of all variables that the CLI generates. Making keys takes long, and their content does not matter
// here.
var credentials map[string]any

func generateCredentials(ctx context.Context) {
	GinkgoHelper()
	all := template{base: fixturePath("bosh.yml"), ops: []string{fixturePath("uaa.yml"), fixturePath("credhub.yml"), fixturePath("jumpbox-user.yml")}}
	folder := GinkgoT().TempDir()
	bosh(ctx, append([]string{"interpolate", "--var", "internal_ip=192.0.2.1"}, all.arguments(folder)...)...)
	content, err := os.ReadFile(filepath.Join(folder, "creds.yml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.Unmarshal(content, &credentials)).To(Succeed())
}

// storeCredentials puts those that the template asks for into the folder.
func (t template) storeCredentials(ctx context.Context, folder string) {
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
	writeYAML(filepath.Join(folder, "creds.yml"), stored)
}

// bosh runs the CLI, which has to succeed, and returns what it printed.
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

// lookup returns what is at the path of keys, and of names of a list's elements.
func lookup(from any, path ...string) any {
	GinkgoHelper()
	for i, key := range path {
		switch value := from.(type) {
		case map[string]any:
			Expect(value).To(HaveKey(key), "%q", path[:i+1])
			from = value[key]
		case []any:
			found := slices.IndexFunc(value, func(each any) bool { return nameOf(each) == key })
			Expect(found).To(BeNumerically(">=", 0), "%q", path[:i+1])
			from = value[found]
		default:
			Fail(fmt.Sprintf("%q is no hash and no list", path[:i]))
		}
	}
	return from
}

func nameOf(element any) string {
	hash, _ := element.(map[string]any)
	name, _ := hash["name"].(string)
	return name
}

package manifests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	installPage     = repositoryRoot + "/docs/guides/install.md"
	credentialsPage = repositoryRoot + "/docs/guides/credentials.md"
	cloudConfigPage = repositoryRoot + "/docs/guides/cloud-config.md"
)

var codeBlockPattern = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?\n)```$")

// codeBlocks returns the code blocks in this language below the heading, or in the whole page if heading is empty.
func codeBlocks(page, heading, language string) []string {
	GinkgoHelper()
	raw, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	content := string(raw)
	if heading != "" {
		_, below, found := strings.Cut(content, "\n## "+heading+"\n")
		Expect(found).To(BeTrue(), "%s has no heading %q", page, heading)
		content, _, _ = strings.Cut(below, "\n## ")
	}
	var blocks []string
	for _, block := range codeBlockPattern.FindAllStringSubmatch(content, -1) {
		if block[1] == language {
			blocks = append(blocks, block[2])
		}
	}
	Expect(blocks).NotTo(BeEmpty(), "%s has no such code block below %q", page, heading)
	return blocks
}

// docReader runs the commands of a page as a cluster administrator would who follows it, in a directory with the docs and manifests of
// this repository.
type docReader struct{ dir string }

func newDocReader() docReader {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	for _, name := range []string{"docs", "manifests"} {
		target, err := filepath.Abs(filepath.Join(repositoryRoot, name))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(target, filepath.Join(dir, name))).To(Succeed())
	}
	return docReader{dir}
}

// run runs setup and then the commands, and returns their output. setup is not part of the page.
func (r docReader) run(ctx context.Context, setup string, commands ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+setup+"\n"+strings.Join(commands, "\n"))
	command.Dir = r.dir
	command.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig("admin"))
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", strings.Join(commands, "\n"), out)
	return string(out)
}

// commandStubs defines functions in place of bosh and kubectl, which would require a director or a real cluster. The function bosh only
// renders the files that the command would use.
const commandStubs = `
bosh() {
  local arguments=() unused=--var-errs-unused
  while (($#)); do
    case $1 in
      create-env) arguments+=(interpolate --var releases=/releases) ;;
      update-cloud-config) arguments+=(interpolate) ;;
      update-runtime-config) arguments+=(interpolate) unused= ;; # the store also has the director's credentials
      upload-stemcell) echo "$*"; return ;;
      --state | --name) shift ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  command bosh --non-interactive "${arguments[@]}" --var-errs $unused
}
kubectl() { echo 10.96.0.10; } # the address of the cluster DNS
`

var _ = Describe("docs/guides/install.md", func() {
	It("has commands that render the director's manifest and the configs in all variants", func(ctx context.Context) {
		r := newDocReader()
		Expect(os.WriteFile(filepath.Join(r.dir, "bosh-cpi.kubeconfig"), []byte(kubeconfig), 0o600)).To(Succeed())
		Expect(os.MkdirAll(filepath.Join(r.dir, "bosh-deployment", "runtime-configs"), 0o755)).To(Succeed())
		for source, name := range map[string]string{"bosh.yml": "bosh.yml", "dns.yml": "runtime-configs/dns.yml"} {
			raw, err := os.ReadFile(fixturePath(source))
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(r.dir, "bosh-deployment", name), raw, 0o600)).To(Succeed())
		}
		template{base: fixturePath("bosh.yml")}.storeCredentials(ctx, r.dir)
		for _, command := range codeBlocks(installPage, "5. Run create-env", "sh") {
			Expect(r.run(ctx, commandStubs, command)).To(ContainSubstring("cpi_job: kubernetes_cpi"))
		}
		Expect(r.run(ctx, commandStubs, codeBlocks(installPage, "7. Upload configs and a stemcell", "sh")...)).To(And(
			ContainSubstring("type: manual"), ContainSubstring("type: dynamic"), ContainSubstring("handlers:")))
	})

	It("has a command that prints the cluster's Service range", func(ctx context.Context) {
		output := newDocReader().run(ctx, "", codeBlocks(installPage, "4. Choose the director's address", "sh")...)
		Expect(output).To(ContainSubstring("10.246.0.0/16"))
	})

	It("has commands that delete the objects that outlive the director", func(ctx context.Context) {
		DeferCleanup(emptyNamespace)
		r := newDocReader()
		r.run(ctx, "", "kubectl create service clusterip bosh-director --tcp=25555 --namespace bosh")
		Expect(r.run(ctx, "", codeBlocks(installPage, "Uninstall", "sh")...)).To(ContainSubstring(`"bosh-director" deleted`))
	})
})

var _ = Describe("docs/guides/credentials.md", func() {
	It("has commands that replace the token of the kubeconfig with one that does not expire", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.CoreV1().Secrets(namespace).Delete(ctx, "bosh-cpi-token", metav1.DeleteOptions{})).To(Succeed())
		})
		r := newDocReader()
		r.run(ctx, "", codeBlocks(installPage, "2. Create a kubeconfig", "sh")...)
		r.run(ctx, "", codeBlocks(credentialsPage, "Token that does not expire", "sh")...)
		Expect(os.Remove(filepath.Join(r.dir, "cpi.token"))).To(Succeed())
		Expect(r.run(ctx, "", "kubectl --kubeconfig bosh-cpi.kubeconfig auth can-i create pods")).To(Equal("yes\n"))
	})
})

var (
	linkPattern        = regexp.MustCompile(`\]\(([^):]*)\)`)
	headingPattern     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuationPattern = regexp.MustCompile(`[^\pL\pN _-]`)
)

// anchors returns the anchors of the page's headings.
func anchors(page string) []string {
	GinkgoHelper()
	raw, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, match := range headingPattern.FindAllStringSubmatch(string(raw), -1) {
		found = append(found, strings.ReplaceAll(punctuationPattern.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return found
}

var _ = DescribeTable("The links of a page lead to existing files and headings", func(page string) {
	raw, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	for _, match := range linkPattern.FindAllStringSubmatch(string(raw), -1) {
		file, anchor, _ := strings.Cut(match[1], "#")
		target := filepath.Join(filepath.Dir(page), file)
		if file == "" { // a heading of the same page
			target = page
		}
		Expect(target).To(BeAnExistingFile(), match[1])
		if anchor != "" {
			Expect(anchors(target)).To(ContainElement(anchor), match[1])
		}
	}
},
	Entry("docs/guides/install.md", installPage),
	Entry("docs/guides/cloud-config.md", cloudConfigPage),
	Entry("manifests/README.md", manifestPath("README.md")),
)

var _ = Describe("docs/guides/cloud-config.md", func() {
	It("has examples with valid cloud_properties", func() {
		for _, block := range codeBlocks(cloudConfigPage, "", "yaml") {
			var config map[string][]map[string]any
			Expect(yaml.Unmarshal([]byte(block), &config)).To(Succeed(), block)
			for kind, definition := range map[string]string{"azs": "vm", "vm_types": "vm", "vm_extensions": "vm", "disk_types": "disk"} {
				for _, example := range config[kind] {
					expectProperties(example["cloud_properties"], definition)
				}
			}
		}
	})
})

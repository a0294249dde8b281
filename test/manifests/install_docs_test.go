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
	"sigs.k8s.io/yaml"
)

const (
	installPage     = repositoryRoot + "/docs/install.md"
	cloudConfigPage = repositoryRoot + "/docs/cloud-config.md"
)

var codeBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?\n)```$")

// codeBlocks returns the page's blocks of this language below the heading, or all of them without one.
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
	for _, found := range codeBlock.FindAllStringSubmatch(content, -1) {
		if found[1] == language {
			blocks = append(blocks, found[2])
		}
	}
	Expect(blocks).NotTo(BeEmpty(), "%s, %q", page, heading)
	return blocks
}

// docReader is somebody who does what a page says: in a folder with this repository's docs and manifests, as the cluster's
// administrator.
type docReader struct{ folder string }

func newDocReader() docReader {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	for _, each := range []string{"docs", "manifests"} {
		target, err := filepath.Abs(filepath.Join(repositoryRoot, each))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(target, filepath.Join(folder, each))).To(Succeed())
	}
	return docReader{folder}
}

// run runs the shell commands, after those of setup, which a page does not show.
func (r docReader) run(ctx context.Context, setup string, commands ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+setup+"\n"+strings.Join(commands, "\n"))
	command.Dir = r.folder
	command.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig("admin"))
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", strings.Join(commands, "\n"), out)
	return string(out)
}

// boshStub lets the commands that need a director check their arguments, and do nothing else.
const boshStub = `
bosh() {
  local arguments=()
  while (($#)); do
    case $1 in
      create-env) arguments+=(interpolate --var releases=/releases) ;;
      update-cloud-config | update-runtime-config) arguments+=(interpolate) ;;
      upload-stemcell) echo "$*"; return ;;
      --state | --name) shift ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  command bosh --non-interactive "${arguments[@]}" --var-errs --var-errs-unused
}
kubectl() { echo 10.96.0.10; } # the name server of a cluster that has one
`

var _ = Describe("The page on installation", func() {
	It("makes a director's manifest in each of its ways, and configs for it", func(ctx context.Context) {
		r := newDocReader()
		Expect(os.WriteFile(filepath.Join(r.folder, "bosh-cpi.kubeconfig"), []byte(kubeconfig), 0o600)).To(Succeed())
		Expect(os.MkdirAll(filepath.Join(r.folder, "bosh-deployment", "runtime-configs"), 0o755)).To(Succeed())
		for source, name := range map[string]string{"bosh.yml": "bosh.yml", "dns.yml": "runtime-configs/dns.yml"} {
			raw, err := os.ReadFile(fixturePath(source))
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(r.folder, "bosh-deployment", name), raw, 0o600)).To(Succeed())
		}
		template{base: fixturePath("bosh.yml")}.storeCredentials(ctx, r.folder)
		for _, each := range codeBlocks(installPage, "5. create-env", "sh") {
			Expect(r.run(ctx, boshStub, each)).To(ContainSubstring("cpi_job: kubernetes_cpi"))
		}
		Expect(r.run(ctx, boshStub, codeBlocks(installPage, "7. Cloud config, DNS, stemcell", "sh")...)).To(And(
			ContainSubstring("type: manual"), ContainSubstring("type: dynamic"), ContainSubstring("handlers:")))
	})

	It("tells the cluster's Service range", func(ctx context.Context) {
		output := newDocReader().run(ctx, "", codeBlocks(installPage, "4. How the director is to be reached", "sh")...)
		Expect(output).To(ContainSubstring("10.246.0.0/16"))
	})

	It("takes away what outlives the director", func(ctx context.Context) {
		DeferCleanup(emptyNamespace)
		r := newDocReader()
		r.run(ctx, "", "kubectl create service clusterip bosh-director --tcp=25555 --namespace bosh")
		Expect(r.run(ctx, "", codeBlocks(installPage, "Taking it away", "sh")...)).To(ContainSubstring(`"bosh-director" deleted`))
	})
})

var (
	link        = regexp.MustCompile(`\]\(([^):]*)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuation = regexp.MustCompile(`[^\pL\pN _-]`)
)

// anchors are the page's headings as a link names them.
func anchors(page string) []string {
	GinkgoHelper()
	raw, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, each := range heading.FindAllStringSubmatch(string(raw), -1) {
		found = append(found, strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(each[1]), ""), " ", "-"))
	}
	return found
}

var _ = DescribeTable("A page's links lead somewhere", func(page string) {
	raw, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	for _, each := range link.FindAllStringSubmatch(string(raw), -1) {
		file, anchor, _ := strings.Cut(each[1], "#")
		target := filepath.Join(filepath.Dir(page), file)
		if file == "" { // another heading of the page
			target = page
		}
		Expect(target).To(BeAnExistingFile(), each[1])
		if anchor != "" {
			Expect(anchors(target)).To(ContainElement(anchor), each[1])
		}
	}
}, Entry("docs/install.md", installPage), Entry("docs/cloud-config.md", cloudConfigPage), Entry("manifests/README.md", manifestPath("README.md")))

var _ = Describe("The page on cloud configs", func() {
	It("has examples of what the CPI knows", func() {
		for _, each := range codeBlocks(cloudConfigPage, "", "yaml") {
			var config map[string][]map[string]any
			Expect(yaml.Unmarshal([]byte(each), &config)).To(Succeed(), each)
			for kind, schema := range map[string]string{"azs": "vm", "vm_types": "vm", "vm_extensions": "vm", "disk_types": "disk"} {
				for _, example := range config[kind] {
					expectProperties(example["cloud_properties"], schema)
				}
			}
		}
	})
})

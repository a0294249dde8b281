package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi"
)

// renderedFiles are the rendered files of the job, by their paths in the job's directory.
type renderedFiles map[string]string

// render renders the job's files from the properties of a manifest.
func render(ctx context.Context, properties any) (renderedFiles, error) {
	input, err := json.Marshal(properties)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "ruby", fixturePath("render.rb"), jobDir)
	command.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	var rendered renderedFiles
	err = json.Unmarshal(stdout.Bytes(), &rendered)
	return rendered, err
}

// mustRender is like render, but fails the test on an error.
func mustRender(ctx context.Context, properties any) renderedFiles {
	GinkgoHelper()
	rendered, err := render(ctx, properties)
	Expect(err).NotTo(HaveOccurred())
	return rendered
}

// config returns the configuration that the CPI loads from config/cpi.json.
func (f renderedFiles) config() cpi.Config {
	GinkgoHelper()
	config, err := cpi.LoadConfig(f.configFile())
	Expect(err).NotTo(HaveOccurred())
	return config
}

// configFile writes config/cpi.json to a file and returns its path.
func (f renderedFiles) configFile() string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "cpi.json")
	Expect(os.WriteFile(path, []byte(f["config/cpi.json"]), 0o600)).To(Succeed())
	return path
}

// expectScript expects that bin/cpi is a valid shell script.
func (f renderedFiles) expectScript(ctx context.Context) {
	GinkgoHelper()
	check := exec.CommandContext(ctx, "bash", "-n")
	check.Stdin = bytes.NewReader([]byte(f["bin/cpi"]))
	out, err := check.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", out, f["bin/cpi"])
}

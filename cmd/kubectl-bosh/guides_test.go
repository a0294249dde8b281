package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// commandPattern matches a command of kubectl on one line of a code block.
var commandPattern = regexp.MustCompile(`(?m)^ *(kubectl .*[^\\|\n])$`)

// testedElsewhere matches commands that this suite cannot run: test/e2e has a kubelet, and test/docs checks the Prometheus rules.
var testedElsewhere = regexp.MustCompile(`^kubectl (drain|delete namespace|bosh (exec|up))|logs .*--agent|out-of-service|--deep|cni-shim|prometheus-rules|--known`)

var _ = Describe("Guides", func() {
	It("have kubectl commands that succeed", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.setMetadata(ctx, "old", "cf", "router", "0")
		values := strings.NewReplacer("--namespace bosh", "--namespace "+env.namespace, "agent-…", "agent-old",
			"disk-…", env.attachNewDisk(ctx, "old"), "NODE", "node-a")
		run := func(ctx SpecContext, command string) {
			GinkgoHelper()
			shell := exec.CommandContext(ctx, "bash", "-c", values.Replace(command))
			shell.Dir = "../.."
			shell.Env = append(os.Environ(), "KUBECONFIG="+controlPlane.Kubeconfig("admin"), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
			out, err := shell.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
		}
		DeferCleanup(func(ctx SpecContext) {
			run(ctx, "kubectl taint nodes NODE dedicated- || true; kubectl label nodes NODE dedicated-")
		})
		run(ctx, "kubectl apply --namespace bosh -f manifests/rbac.yaml")
		run(ctx, "kubectl apply -f manifests/admission-policy.yaml")
		for _, page := range []string{"disks", "networks", "services", "troubleshooting", "cloud-config", "operations"} {
			content, err := os.ReadFile("../../docs/guides/" + page + ".md")
			Expect(err).NotTo(HaveOccurred())
			commands := commandPattern.FindAllStringSubmatch(string(content), -1)
			Expect(commands).NotTo(BeEmpty(), page)
			for _, command := range commands {
				if !testedElsewhere.MatchString(command[1]) {
					run(ctx, command[1])
				}
			}
		}
	})
})

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/director"
)

// journey is an operator's first day: a director in the cluster, and a deployment by this director.
type journey struct {
	*exampleDeployment
	client     *remoteClient
	directorVM *testVM
	app        *testVM
}

// newJourney installs the director's VM with `kubectl bosh up`. Its address is of a Service, and the CPI in it authenticates with the
// Pod's service account. The test plays the director: it runs the CPI in that VM, and sends messages to the agents.
func newJourney(ctx context.Context) *journey {
	GinkgoHelper()
	j := &journey{exampleDeployment: newExampleDeployment(ctx, "web", "web"), client: newUpClient(ctx, "journey")}
	j.client.up(ctx, "--network", "service", "--address", "10.246.0.90", "--ops-file", "testdata/director-port.yml", "--var", "greeting=good morning")
	original, namespace := j.Director, j.namespace
	DeferCleanup(func() { j.Director, j.namespace = original, namespace })
	j.namespace = j.client.namespace
	j.directorVM = &testVM{env: j.testEnv, cid: j.client.vmPodName(ctx)}
	configuration, err := json.Marshal(map[string]any{
		"kubernetes": map[string]any{"namespace": j.namespace, "node_image": os.Getenv("E2E_NODE_IMAGE")},
		"agent":      map[string]any{"mbus": j.bus.URL, "blobstore": j.blobs.Options},
	})
	Expect(err).NotTo(HaveOccurred())
	program, err := os.ReadFile("../../bin/cpi")
	Expect(err).NotTo(HaveOccurred())
	inVM := &director.Director{CPI: "/var/vcap/packages/kubernetes_cpi/bin/cpi", Config: "/var/vcap/jobs/kubernetes_cpi/config/cpi.json"}
	j.directorVM.writeFile(ctx, inVM.CPI, string(program))
	j.directorVM.writeFile(ctx, inVM.Config, string(configuration))
	j.Director = inVM.WithWrapper("kubectl", "--kubeconfig", j.kubeconfig, "exec", "--stdin", "--namespace", j.namespace, j.directorVM.cid, "--",
		"runuser", "-u", "vcap", "--", "env", "-i")
	return j
}

// deployApp creates one instance of the example's app, as `bosh deploy` does.
func (j *journey) deployApp(ctx context.Context) {
	GinkgoHelper()
	j.app = j.createInstance(ctx)
	j.mustCall(ctx, "set_vm_metadata", j.app.cid, map[string]any{"director": "journey", "deployment": "web", "instance_group": "app", "job": "app", "index": "0", "id": "0"})
	j.compileProgram(ctx, j.app, buildWebProgram(ctx))
	j.app.update(ctx, j.exampleSpec(ctx, exampleInstance{job: "app", group: "app", id: "0", address: j.app.address}))
}

var _ = Describe("A director in the embedded cluster", Label("journey", "extended"), Ordered, func() {
	var j *journey
	BeforeAll(func(ctx context.Context) { j = newJourney(ctx) }, NodeTimeout(2*longTest))

	It("reaches the API server through its Service, with the service account of its VM", func(ctx context.Context) {
		Expect(j.mustCall(ctx, "has_vm", j.directorVM.cid).Result).To(MatchJSON("true"))
	}, NodeTimeout(longTest))

	It("deploys an app that responds", func(ctx context.Context) {
		j.deployApp(ctx)
		Eventually(httpGet).WithContext(ctx).WithArguments(fmt.Sprintf("http://%s:8080/", j.app.address)).Should(ContainSubstring("app/0"))
	}, NodeTimeout(2*longTest))

	It("shows its instances to an operator, who can read their logs and log in", func(ctx context.Context) {
		Expect(j.client.kubectlBosh(ctx, "ps", "--namespace", j.namespace)).To(MatchRegexp(`app/0 .*%s`, j.app.address))
		Expect(j.client.kubectlBosh(ctx, "logs", "app/0", "--namespace", j.namespace)).NotTo(BeEmpty())
		Expect(j.client.kubectlBosh(ctx, "exec", "app/0", "--namespace", j.namespace, "--", "pgrep", "--full", "/var/vcap/packages/web/bin/web")).To(MatchRegexp(`^\d+\n`))
	}, NodeTimeout(longTest))

	It("is not deleted while it has instances", func(ctx context.Context) {
		out, err := j.client.run(ctx, "../../bin/kubectl-bosh", "down", "--dir", filepath.Join(j.client.dir, "env"), "--yes")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("VMs or disks other than the director's own"))
	}, NodeTimeout(longTest))

	It("leaves no objects after its deployment is deleted and kubectl bosh down", func(ctx context.Context) {
		j.mustCall(ctx, "delete_vm", j.app.cid)
		j.client.down(ctx)
	}, NodeTimeout(longTest))
})

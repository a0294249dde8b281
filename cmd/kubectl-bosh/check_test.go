package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"bosh-kubernetes-cpi/cpi/collect"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/director"
)

var _ = Describe("kubectl bosh check", func() {
	var env testEnv
	BeforeEach(func(ctx SpecContext) { env = newTestEnv(ctx) })

	It("runs the preflight checks of cpi -check in the namespace", func() {
		env.kubeconfig = controlPlane.Kubeconfig("admin")
		session := env.run("check", "--namespace", env.namespace)
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`^CHECK +KIND +RESULT +DETAIL AND REMEDY\napi +required +ok +https://127\.0\.0\.1:\d+ responds, namespace ` + env.namespace + `\n`))
		Expect(session.Out).To(gbytes.Say(`create-vm +required +ok +would be admitted`))
		Expect(session.Out).To(gbytes.Say(`\n\d+ checks: \d+ ok, \d+ fails, \d+ unknown; all required checks passed\n$`))
	})

	It("prints only failures with --failures", func() {
		env.kubeconfig = controlPlane.Kubeconfig("admin")
		session := env.run("check", "--namespace", env.namespace, "--failures")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out.Contents()).NotTo(MatchRegexp(` (required|advised|optional) +(ok|unknown) `))
		Expect(session.Out).To(gbytes.Say(`\d+ checks: `))
	})

	It("requires the image of bosh-node with a digest", func() {
		session := env.run("check", "--node-image", "registry.example.com/bosh-node:1")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`--node-image: .*requires a repository and a digest`))
	})

	It("fails without the CPI's permissions, and prints the results as JSON", func() {
		session := env.run("check", "-o", "json")
		Expect(session).To(gexec.Exit(1))
		var results []preflight.Result
		Expect(json.Unmarshal(session.Out.Contents(), &results)).To(Succeed())
		Expect(results).To(HaveLen(len(preflight.Checks())))
		Expect(results).To(ContainElement(And(HaveField("Check", "permissions"), HaveField("Verdict", preflight.Fails))))
		Expect(session.Err.Contents()).To(BeEmpty())
	})
})

var _ = Describe("kubectl bosh collect", func() {
	var env testEnv
	BeforeEach(func(ctx SpecContext) {
		env = newTestEnv(ctx)
		env.createVM(ctx, "old", address, nil)
		env.kubeconfig = controlPlane.Kubeconfig("admin")
	})

	It("lists orphaned resources, and deletes them with --confirm", func() {
		args := []string{"collect", "--namespace", env.namespace, "--director", director.UUID, "--min-age", "1ms"}
		Expect(env.mustRun(args...)).To(MatchRegexp(
			`^Pod ` + env.namespace + `/agent-old \(\d+s old\): orphaned by an interrupted create_vm: .*: would be deleted\nnothing was changed; to delete or repair these resources, run with --confirm\n$`))
		var found []collect.Result
		Expect(json.Unmarshal([]byte(env.mustRun(append(args, "-o", "json")...)), &found)).To(Succeed())
		Expect(found).To(ConsistOf(And(HaveField("Kind", "Pod"), HaveField("Name", "agent-old"), HaveField("Outcome", "would be deleted"))))
		Expect(env.mustRun(append(args, "--confirm")...)).To(HaveSuffix(": deleted\n"))
		Eventually(func() string { return env.mustRun(args...) }).Should(Equal("no orphaned resources\n"))
		Expect(env.mustRun(append(args, "-o", "json")...)).To(Equal("[]\n"))
	})

	It("includes all directors with VMs in the namespace, because a director's own VM has a different UUID from its deployments", func(ctx SpecContext) {
		env.createVM(ctx, "new", "10.9.8.8", nil)
		_, err := controlPlane.Kubectl(ctx, "label", "--overwrite", "pod", "agent-new", "--namespace", env.namespace, manifest.LabelDirector+"=other")
		Expect(err).NotTo(HaveOccurred())
		output := env.mustRun("collect", "--namespace", env.namespace, "--min-age", "1ms")
		Expect(output).To(And(ContainSubstring("Pod "+env.namespace+"/agent-old "), ContainSubstring("Pod "+env.namespace+"/agent-new ")))
		Expect(output).To(HaveSuffix("\nnothing was changed; to delete or repair these resources, run with --confirm\n"))
	})

	It("lists VMs that the director does not know", func(ctx SpecContext) {
		env.setMetadata(ctx, "old", "cf", "web", "0")
		known := filepath.Join(GinkgoT().TempDir(), "known.json")
		Expect(os.WriteFile(known, []byte(`{"Tables": null}{"Tables": [{"Content": "orphaned_vms"}]}{"Tables": null}{"Tables": [{"Content": "disks"}]}`), 0o600)).To(Succeed())
		Expect(env.mustRun("collect", "--namespace", env.namespace, "--director", director.UUID, "--known", known)).To(
			ContainSubstring("run `bosh -d cf delete-vm agent-old`: kept"))
		session := env.run("collect", "--namespace", env.namespace, "--known", known)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("--known requires --director"))
	})

	It("requires a director if none has a VM in the namespace", func() {
		session := env.run("collect", "--namespace", "default")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("no director has a VM in namespace default; set --director"))
	})
})

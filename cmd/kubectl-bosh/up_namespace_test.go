package main_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	podSecurityLabel = "pod-security.kubernetes.io/enforce"
	allowFlag        = "--allow-privileged-namespace"
)

// setPodSecurity sets the namespace's Pod Security label. An empty level removes it.
func (ws workspace) setPodSecurity(ctx context.Context, level string) {
	GinkgoHelper()
	label := podSecurityLabel + "=" + level
	if level == "" {
		label = podSecurityLabel + "-"
	}
	_, err := controlPlane.Kubectl(ctx, "label", "--overwrite", "namespace", ws.namespace, label)
	Expect(err).NotTo(HaveOccurred())
}

// podSecurity returns the namespace's Pod Security label, or "" if there is none.
func (ws workspace) podSecurity(ctx context.Context) string {
	GinkgoHelper()
	namespace, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return namespace.Labels[podSecurityLabel]
}

var _ = Describe("The Pod Security label of an existing namespace", func() {
	var (
		ws  workspace
		env testEnv
	)
	BeforeEach(func(ctx SpecContext) {
		ws, env = newWorkspaceWithCLI(), newTestEnv(ctx)
		ws.namespace = env.namespace
	})

	for _, level := range []string{"restricted", "baseline"} {
		It("makes up fail if it is "+level+", even with --yes, and is shown in the plan", func(ctx SpecContext) {
			ws.setPodSecurity(ctx, level)
			session := ws.up("--yes")
			Expect(session).To(gexec.Exit(1))
			Expect(session.Out).To(gbytes.Say(`namespace +` + ws.namespace + ` \(` + podSecurityLabel + `=` + level + `\)\n`))
			Expect(session.Out).To(gbytes.Say(`namespace +its label rejects VM Pods; up stops without ` + allowFlag + `\n`))
			Expect(session.Err).To(gbytes.Say(`^error: namespace ` + ws.namespace + ` rejects VM Pods, which are privileged: its label is ` + podSecurityLabel + `=` + level +
				"; to change the label until `kubectl bosh down` restores it, run: kubectl bosh up --dir kubernetes --kubeconfig " + ws.kubeconfig + " --bosh=./create-env " + allowFlag + `\n`))
			Expect(ws.podSecurity(ctx)).To(Equal(level))
			_, err := cluster.CoreV1().ServiceAccounts(ws.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
			Expect(err).To(MatchError(ContainSubstring("not found")), "nothing else is created either")
		})
	}

	It("is changed by the command that up prints, and restored by down", func(ctx SpecContext) {
		ws.setPodSecurity(ctx, "restricted")
		session := ws.up("--yes", "--var", "password=secret")
		Expect(session).To(gexec.Exit(1))
		printed := regexp.MustCompile(`run: kubectl bosh (.*)`).FindStringSubmatch(string(session.Err.Contents()))
		Expect(printed).NotTo(BeEmpty())
		command := exec.CommandContext(ctx, "sh", "-c", program+" "+printed[1]+" --yes")
		command.Dir = ws.dir
		session = startCommand(command)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`namespace +gets the label ` + podSecurityLabel + `=privileged instead of restricted \(` + allowFlag + `\); down restores it\n`))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `: ` + podSecurityLabel + `=privileged instead of restricted\n`))
		Expect(ws.podSecurity(ctx)).To(Equal("privileged"))

		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0), "the next run finds the changed label")
		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `: ` + podSecurityLabel + ` restored to restricted\n`))
		Expect(ws.podSecurity(ctx)).To(Equal("restricted"))
		Expect(ws.read("kubernetes/up.yml")).NotTo(ContainSubstring("previous_pod_security"))
	})

	It("is not added, which leaves the cluster's default", func(ctx SpecContext) {
		Expect(ws.up()).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(BeEmpty())
	})

	It("is added with the flag, and removed by down", func(ctx SpecContext) {
		Expect(ws.up(allowFlag)).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(Equal("privileged"))
		Expect(ws.down()).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(BeEmpty())
	})

	It("is not restored if it was changed after up", func(ctx SpecContext) {
		ws.setPodSecurity(ctx, "restricted")
		Expect(ws.up(allowFlag)).To(gexec.Exit(0))
		ws.setPodSecurity(ctx, "baseline")
		session := ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(podSecurityLabel + " kept at baseline: it was changed after `up`\n"))
		Expect(ws.podSecurity(ctx)).To(Equal("baseline"))
	})

	It("is kept for VMs that down --force leaves behind, and restored after they are deleted", func(ctx SpecContext) {
		ws.setPodSecurity(ctx, "restricted")
		Expect(ws.up(allowFlag)).To(gexec.Exit(0))
		env.createVM(ctx, "old", address, nil)
		session := ws.down("--force")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + ws.namespace + `: keeps ` + podSecurityLabel + `=privileged for the remaining resources`))
		Expect(ws.podSecurity(ctx)).To(Equal("privileged"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		Expect(ws.down()).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(Equal("restricted"))
	})

	It("is not changed by a dry run or by applying permissions.yaml manually", func(ctx SpecContext) {
		ws.setPodSecurity(ctx, "restricted")
		output := ws.planOutput(allowFlag)
		Expect(output).To(ContainSubstring("  kubectl label --overwrite namespace " + ws.namespace + " " + podSecurityLabel + "=privileged --kubeconfig "))
		_, err := controlPlane.Kubectl(ctx, "apply", "-f", filepath.Join(ws.dir, "kubernetes", "permissions.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(ws.podSecurity(ctx)).To(Equal("restricted"))
	})

	It("makes up fail in a namespace created by up, too", func(ctx SpecContext) {
		ws = newWorkspaceWithCLI()
		Expect(ws.up()).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(Equal("privileged"))
		ws.setPodSecurity(ctx, "restricted")
		Expect(ws.run("", "up", "--yes", "--bosh", "./create-env")).To(gexec.Exit(1))
		Expect(ws.podSecurity(ctx)).To(Equal("restricted"))
	})

	It("is not changed by a permissions.yaml that has the label", func(ctx SpecContext) {
		ws.setPodSecurity(ctx, "restricted")
		ws.planOutput()
		permissions := ws.read("kubernetes/permissions.yaml")
		ws.write("kubernetes/permissions.yaml", strings.Replace(permissions, "  name: "+ws.namespace+"\n", "  name: "+ws.namespace+"\n  labels: {"+podSecurityLabel+": privileged}\n", 1))
		ws.setPodSecurity(ctx, "")
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(ws.podSecurity(ctx)).To(BeEmpty())
	})

	It("is left to an administrator if the operator does not have permission to change it in up", func(ctx SpecContext) {
		u := newUpUser(ctx, &ws)
		ws.applyPermissions(ctx, ws.printPermissions(), u.user)
		ws.setPodSecurity(ctx, "restricted")
		session := ws.up(allowFlag)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`cannot patch resource "namespaces".*; an administrator can run: kubectl label --overwrite namespace ` +
			ws.namespace + ` ` + podSecurityLabel + `=privileged\n`))
		Expect(ws.read("kubernetes/up.yml")).NotTo(ContainSubstring("previous_pod_security"), "down must not restore a label that up did not change")
	})

	It("is left to an administrator if the operator does not have permission to restore it in down", func(ctx SpecContext) {
		administrator := ws.kubeconfig
		u := newUpUser(ctx, &ws)
		ws.applyPermissions(ctx, ws.printPermissions(), u.user)
		operator := ws.kubeconfig
		ws.setPodSecurity(ctx, "restricted")
		ws.kubeconfig = administrator
		Expect(ws.up(allowFlag)).To(gexec.Exit(0))
		ws.kubeconfig = operator
		session := ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`keeps ` + podSecurityLabel + `=privileged, which you do not have permission to change; an administrator can run: kubectl label --overwrite namespace ` +
			ws.namespace + ` ` + podSecurityLabel + `=restricted\n`))
	})
})

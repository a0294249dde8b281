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
	podSecurity = "pod-security.kubernetes.io/enforce"
	allow       = "--allow-privileged-namespace"
)

// enforces sets the label of the namespace; "" removes it.
func (g ground) enforces(ctx context.Context, level string) {
	GinkgoHelper()
	label := podSecurity + "=" + level
	if level == "" {
		label = podSecurity + "-"
	}
	_, err := plane.Kubectl(ctx, "label", "--overwrite", "namespace", g.namespace, label)
	Expect(err).NotTo(HaveOccurred())
}

// enforced is the label of the namespace; "" without one.
func (g ground) enforced(ctx context.Context) string {
	GinkgoHelper()
	namespace, err := cluster.CoreV1().Namespaces().Get(ctx, g.namespace, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return namespace.Labels[podSecurity]
}

var _ = Describe("The label for Pod Security of a namespace that exists", func() {
	var (
		g ground
		w world
	)
	BeforeEach(func(ctx SpecContext) {
		g, w = newDoer(), newWorld(ctx)
		g.namespace = w.namespace
	})

	for _, level := range []string{"restricted", "baseline"} {
		It("stops up when it is "+level+", also with --yes, and is shown by the plan", func(ctx SpecContext) {
			g.enforces(ctx, level)
			session := g.up("--yes")
			Expect(session).To(gexec.Exit(1))
			Expect(session.Out).To(gbytes.Say(`namespace +` + g.namespace + `, with ` + podSecurity + `=` + level + `\n`))
			Expect(session.Out).To(gbytes.Say(`namespace +refuses VM Pods by its label; nothing is done unless ` + allow + ` is given\n`))
			Expect(session.Err).To(gbytes.Say(`^error: namespace ` + g.namespace + ` refuses VM Pods, which are privileged: it has the label ` + podSecurity + `=` + level +
				"; to change that until `kubectl bosh down` restores it, run: kubectl bosh up --dir kubernetes --kubeconfig " + g.as + " --bosh=./create-env " + allow + `\n`))
			Expect(g.enforced(ctx)).To(Equal(level))
			_, err := cluster.CoreV1().ServiceAccounts(g.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
			Expect(err).To(MatchError(ContainSubstring("not found")), "nothing else is made either")
		})
	}

	It("is changed by the command that up prints, and restored by down", func(ctx SpecContext) {
		g.enforces(ctx, "restricted")
		session := g.up("--yes", "--var", "password=secret")
		Expect(session).To(gexec.Exit(1))
		printed := regexp.MustCompile(`run: kubectl bosh (.*)`).FindStringSubmatch(string(session.Err.Contents()))
		Expect(printed).NotTo(BeEmpty())
		command := exec.CommandContext(ctx, "sh", "-c", program+" "+printed[1]+" --yes")
		command.Dir = g.folder
		session = start(command)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`namespace +gets ` + podSecurity + `=privileged in place of restricted, as ` + allow + ` says; down restores that\n`))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: ` + podSecurity + `=privileged in place of restricted\n`))
		Expect(g.enforced(ctx)).To(Equal("privileged"))

		Expect(g.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0), "the next run finds it so")
		session = g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: ` + podSecurity + ` is restricted again\n`))
		Expect(g.enforced(ctx)).To(Equal("restricted"))
		Expect(g.read("kubernetes/up.yml")).NotTo(ContainSubstring("former_pod_security"))
	})

	It("is not added when there is none, which leaves it to the cluster's default", func(ctx SpecContext) {
		Expect(g.up()).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(BeEmpty())
	})

	It("is added on request for a cluster whose default refuses VM Pods, and removed by down", func(ctx SpecContext) {
		Expect(g.up(allow)).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(Equal("privileged"))
		Expect(g.down()).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(BeEmpty())
	})

	It("stays what somebody else has made of it after up", func(ctx SpecContext) {
		g.enforces(ctx, "restricted")
		Expect(g.up(allow)).To(gexec.Exit(0))
		g.enforces(ctx, "baseline")
		session := g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(podSecurity + " stays baseline: it was changed after `up`\n"))
		Expect(g.enforced(ctx)).To(Equal("baseline"))
	})

	It("stays for what down --force leaves behind, and is restored once that is gone", func(ctx SpecContext) {
		g.enforces(ctx, "restricted")
		Expect(g.up(allow)).To(gexec.Exit(0))
		w.create(ctx, "old", address, nil)
		session := g.down("--force")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: keeps ` + podSecurity + `=privileged for what is left in it`))
		Expect(g.enforced(ctx)).To(Equal("privileged"))
		w.must(ctx, "delete_vm", "agent-old")
		Expect(g.down()).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(Equal("restricted"))
	})

	It("is not changed by a dry run, nor by applying rights.yaml by hand", func(ctx SpecContext) {
		g.enforces(ctx, "restricted")
		said := g.plans(allow)
		Expect(said).To(ContainSubstring("  kubectl label --overwrite namespace " + g.namespace + " " + podSecurity + "=privileged --kubeconfig "))
		_, err := plane.Kubectl(ctx, "apply", "-f", filepath.Join(g.folder, "kubernetes", "rights.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(g.enforced(ctx)).To(Equal("restricted"))
	})

	It("stops up in a namespace that up has made, too", func(ctx SpecContext) {
		g = newDoer()
		Expect(g.up()).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(Equal("privileged"))
		g.enforces(ctx, "restricted")
		Expect(g.run("", "up", "--yes", "--bosh", "./create-env")).To(gexec.Exit(1))
		Expect(g.enforced(ctx)).To(Equal("restricted"))
	})

	It("is not changed by a rights.yaml that has the label", func(ctx SpecContext) {
		g.enforces(ctx, "restricted")
		g.plans()
		rights := g.read("kubernetes/rights.yaml")
		g.write("kubernetes/rights.yaml", strings.Replace(rights, "  name: "+g.namespace+"\n", "  name: "+g.namespace+"\n  labels: {"+podSecurity+": privileged}\n", 1))
		g.enforces(ctx, "")
		Expect(g.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		Expect(g.enforced(ctx)).To(BeEmpty())
	})

	It("is left to an administrator when whoever runs up may not change it", func(ctx SpecContext) {
		b := newBringer(ctx, &g)
		g.applies(ctx, g.printed(), b.user)
		g.enforces(ctx, "restricted")
		session := g.up(allow)
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`cannot patch resource "namespaces".*; an administrator can run: kubectl label --overwrite namespace ` +
			g.namespace + ` ` + podSecurity + `=privileged\n`))
		Expect(g.read("kubernetes/up.yml")).NotTo(ContainSubstring("former_pod_security"), "down must not restore what up has not changed")
	})

	It("is left to an administrator when whoever runs down may not restore it", func(ctx SpecContext) {
		administrator := g.as
		b := newBringer(ctx, &g)
		g.applies(ctx, g.printed(), b.user)
		operator := g.as
		g.enforces(ctx, "restricted")
		g.as = administrator
		Expect(g.up(allow)).To(gexec.Exit(0))
		g.as = operator
		session := g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`keeps ` + podSecurity + `=privileged, which you may not change; an administrator can run: kubectl label --overwrite namespace ` +
			g.namespace + ` ` + podSecurity + `=restricted\n`))
	})
})

package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/director"
)

// createEnv notes how it was called, has the real CLI read what create-env would, and keeps a state as that does. No machine
// of this cluster has an agent: test/e2e has the whole of it.
const createEnv = `#!/bin/bash
set -euo pipefail
printf '%s\n' "$BOSH_ALL_PROXY" "$@" >>calls
[[ ! -e fails ]] || exit 7
verb=$1 arguments=()
shift
while (($#)); do
  case $1 in
    --state) state=$2; shift ;;
    --vars-store) shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
bosh interpolate "${arguments[@]}" --var releases=/releases >manifest.yml
if [[ $verb == create-env ]]; then echo '{"director_id": "create-envs-own"}' >"$state"; else rm "$state"; fi
`

func newDoer() ground {
	GinkgoHelper()
	g := newGround()
	g.write("create-env", createEnv)
	return g
}

// up runs it as one who agrees.
func (g ground) up(more ...string) *gexec.Session {
	GinkgoHelper()
	return g.run("y\n", append(append(append([]string{}, first...), "--namespace", g.namespace, "--bosh", "./create-env"), more...)...)
}

func (g ground) down(more ...string) *gexec.Session {
	GinkgoHelper()
	return g.run("yes\n", append([]string{"down", "--bosh", "./create-env"}, more...)...)
}

// rules are those of docs/rbac.yaml, of a Role or a ClusterRole.
func rules(kind string) []rbacv1.PolicyRule {
	GinkgoHelper()
	content, err := os.ReadFile("../../docs/rbac.yaml")
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		if role.Kind == kind {
			return role.Rules
		}
	}
	return nil
}

// answers expects the CPI to work by the kubeconfig.
func (g ground) answers(ctx context.Context, kubeconfig string) {
	GinkgoHelper()
	config := g.path("cpi.json")
	Expect(director.WriteConfig(config, kubeconfig, g.namespace, nil)).To(Succeed())
	response, err := (&director.Director{CPI: cpi, Config: config}).Call(ctx, "has_vm", "agent-none")
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Error).To(BeNil())
}

func (g ground) gone(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() bool {
		_, err := cluster.CoreV1().Namespaces().Get(ctx, g.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
	_, err := cluster.RbacV1().ClusterRoles().Get(ctx, "bosh-cpi-"+g.namespace, metav1.GetOptions{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue())
	_, err = cluster.RbacV1().ClusterRoleBindings().Get(ctx, "bosh-cpi-"+g.namespace, metav1.GetOptions{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue())
}

var _ = Describe("kubectl bosh up and down", func() {
	var g ground
	BeforeEach(func() { g = newDoer() })

	It("make a namespace with exactly the documented rights and credentials, run the BOSH CLI by a proxy, and take all away again", func(ctx SpecContext) {
		session := g.up()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Create or update the director kubernetes in namespace ` + g.namespace + ` of the cluster .*\? \[yN\]: `))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: made\n`))
		Expect(session.Out).To(gbytes.Say(`check: the CPI can work in the namespace`))
		Expect(session.Out).To(gbytes.Say(`bosh alias-env kubernetes -e 10\.246\.0\.60 `))
		Expect(g.read("calls")).To(MatchRegexp(`^socks5://127\.0\.0\.1:\d+\ncreate-env\n` + g.path("bosh-deployment/bosh.yml") + "\n"))
		Expect(g.read("manifest.yml")).To(ContainSubstring("bosh-cpi"), "the kubeconfig is in it")

		namespace, err := cluster.CoreV1().Namespaces().Get(ctx, g.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "privileged"))
		role, err := cluster.RbacV1().Roles(g.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(role.Rules).To(Equal(rules("Role")))
		ofCluster, err := cluster.RbacV1().ClusterRoles().Get(ctx, "bosh-cpi-"+g.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(ofCluster.Rules).To(Equal(rules("ClusterRole")))
		g.answers(ctx, g.path("kubernetes/cpi.kubeconfig"))

		before, token := g.read("manifest.yml"), g.read("kubernetes/cpi.token")
		session = g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(g.read("kubernetes/cpi.token")).NotTo(Equal(token))
		Expect(g.read("manifest.yml")).To(Equal(before), "create-env would make the machine anew for the sake of a token")
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: is there\n`))
		Expect(strings.Count(g.read("calls"), "create-env\n")).To(Equal(2))

		session = g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`ClusterRoleBinding bosh-cpi-` + g.namespace + `: deleted\n`))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: deleted\n`))
		Expect(session.Out).To(gbytes.Say(`kubernetes: stays`))
		Expect(g.read("calls")).To(ContainSubstring("\ndelete-env\n"))
		g.gone(ctx)
	})

	It("give the director a kubeconfig with a lasting token where it is to have one", func(ctx SpecContext) {
		Expect(g.up("--credentials", "kubeconfig")).To(gexec.Exit(0))
		config, err := clientcmd.LoadFromFile(g.path("kubernetes/director.kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Clusters["kubernetes"].Server).To(Equal("https://10.246.0.1:443"))
		config.Clusters["kubernetes"].Server = plane.URL() // as if there was a kube-proxy
		Expect(clientcmd.WriteToFile(*config, g.path("as-if"))).To(Succeed())
		g.answers(ctx, g.path("as-if"))
		Expect(g.down()).To(gexec.Exit(0))
		g.gone(ctx)
	})

	It("leave what was there before, and what is not the director's", func(ctx SpecContext) {
		w := newWorld(ctx)
		g.namespace = w.namespace
		Expect(g.up()).To(gexec.Exit(0))
		w.create(ctx, "old", address, nil)
		session := g.down()
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: namespace ` + w.namespace + ` has what is not the director's own: VM agent-old; delete its deployments first`))
		session = g.down("--force")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("Namespace " + w.namespace + ": stays: `up` has not made it\n"))
		w.must(ctx, "delete_vm", "agent-old")
	})

	It("delete no namespace in which something is left", func(ctx SpecContext) {
		Expect(g.up()).To(gexec.Exit(0))
		_, err := plane.Kubectl(ctx, "create", "service", "clusterip", "mine", "--tcp=80", "--namespace", g.namespace)
		Expect(err).NotTo(HaveOccurred())
		session := g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Namespace ` + g.namespace + `: stays: there are 0 Pods, 0 PersistentVolumeClaims and 1 Services in it\n`))
	})

	It("do not go on where the CPI cannot work, and say why, unless told to", func(ctx SpecContext) {
		w := newWorld(ctx)
		g.namespace = w.namespace
		_, err := plane.Kubectl(ctx, "create", "quota", "none", "--hard=pods=0", "--namespace", g.namespace)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() *gexec.Session { return g.up() }).WithContext(ctx).Should(gexec.Exit(1)) // once the quota holds
		session := g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say(`create-vm +required +fails +create Pod .*exceeded quota`))
		Expect(session.Err).To(gbytes.Say(`^error: the CPI cannot work in namespace ` + g.namespace))
		Expect(g.path("calls")).NotTo(BeAnExistingFile())
		Expect(g.run("y\n", "up", "--bosh", "./create-env", "--no-check")).To(gexec.Exit(0))
	})

	It("end as the BOSH CLI ends", func() {
		g.write("fails", "")
		session := g.up()
		Expect(session).To(gexec.Exit(7))
		Expect(session.Err).To(gbytes.Say(`error: bosh create-env failed: its reason is above`))
	})

	It("run it without a proxy where there is a route to the director", func() {
		g.write("create-env", "#!/bin/bash\necho \"by ${BOSH_ALL_PROXY:-nothing}\"\n")
		Expect(g.up("--no-proxy").Out).To(gbytes.Say("by nothing\n"))
	})

	It("say who may not make what is needed, as the API server says it", func(ctx SpecContext) {
		w := newWorld(ctx)
		g.as = w.account(ctx, "guest", "")
		session := g.up("--address", "10.246.0.77")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: Namespace ` + g.namespace + `: namespaces "` + g.namespace + `" is forbidden: User ` +
			`"system:serviceaccount:` + w.namespace + `:guest" cannot get resource .*; an administrator can apply what .kubectl bosh up --print-rights --namespace ` + g.namespace + `. prints`))
		Expect(filepath.Join(g.folder, "calls")).NotTo(BeAnExistingFile())
	})

	It("know nothing of a folder that up has not written", func() {
		session := g.down()
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("^error: kubernetes has no up.yml: `kubectl bosh up` has brought nothing from there"))
	})
})

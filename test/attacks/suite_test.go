package attacks

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/test/embedded"
)

func TestAttacks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "attacks")
}

const root = "../.."

// startTimeout is how long a control plane may take to start.
const startTimeout = 2 * time.Minute

// crdManifest is as much of a kind's API as the server has to know.
func crdManifest(group, kind, scope string) string {
	singular := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[3]ss.%[1]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[1]s
  scope: %[4]s
  names: {kind: %[2]s, plural: %[3]ss, singular: %[3]s, listKind: %[2]sList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---`, group, kind, singular, scope)
}

// attackEnv is an API server with namespaces to attack.
type attackEnv struct {
	plane          *embedded.ControlPlane
	admin          *rest.Config
	cluster        kubernetes.Interface
	policy         Policy
	minor          int
	attackers      map[string]*Attacker
	namespaceCount int
}

// newAttackEnv is a lab in which the policy does not hold.
func newAttackEnv(ctx context.Context) *attackEnv {
	GinkgoHelper()
	plane, err := embedded.NewTestControlPlane(filepath.Join(GinkgoT().TempDir(), "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	Expect(plane.Apply(ctx, crdManifest("crd.projectcalico.org", "IPPool", "Cluster")+crdManifest("crd.projectcalico.org", "IPReservation", "Cluster")+
		crdManifest("snapshot.storage.k8s.io", "VolumeSnapshot", "Namespaced"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())

	env := &attackEnv{plane: plane, attackers: map[string]*Attacker{}}
	env.admin, err = clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	env.admin.QPS = -1
	env.admin.WarningHandler = rest.NoWarnings{}
	env.cluster, err = kubernetes.NewForConfig(env.admin)
	Expect(err).NotTo(HaveOccurred())
	env.policy, err = ReadPolicy(root)
	Expect(err).NotTo(HaveOccurred())
	version, err := env.cluster.Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Sscan(version.Minor, &env.minor)
	Expect(err).NotTo(HaveOccurred())
	return env
}

// newAttackEnvWithPolicy is a lab in which the policy holds.
func newAttackEnvWithPolicy(ctx context.Context) *attackEnv {
	GinkgoHelper()
	env := newAttackEnv(ctx)
	raw, err := os.ReadFile(root + "/manifests/admission-policy.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(env.plane.Apply(ctx, string(raw))).To(Succeed())
	return env
}

// nextNamespace is the name of a new namespace.
func (env *attackEnv) nextNamespace() string {
	env.namespaceCount++
	return fmt.Sprintf("world-%d", env.namespaceCount)
}

// newAttacker is somebody with the token in a new namespace with these labels and limits.
func (env *attackEnv) newAttacker(ctx context.Context, labels map[string]string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	all := map[string]string{}
	for _, each := range limits {
		maps.Copy(all, each)
	}
	a, err := NewAttacker(ctx, env.admin, root, env.nextNamespace(), labels, all)
	Expect(err).NotTo(HaveOccurred())
	return a
}

// confinedAttacker is somebody with the token in a namespace with the policy and these limits; the same one for the same limits.
func (env *attackEnv) confinedAttacker(ctx context.Context, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	name := fmt.Sprint(limits)
	if env.attackers[name] == nil {
		env.attackers[name] = env.newAttacker(ctx, EnforcedLabels, limits...)
		Eventually(env.policy.CheckEnforced).WithContext(ctx).WithArguments(env.attackers[name]).Should(Succeed())
	}
	return env.attackers[name]
}

// supportedAttacks are those that are about something that this API server has.
func (env *attackEnv) supportedAttacks() []Attack {
	return slices.DeleteFunc(All(), func(attack Attack) bool { return attack.MinMinor > env.minor })
}

var _ = Describe("With the admission policy, somebody with the token of the CPI's service account", Ordered, ContinueOnFailure, func() {
	var env *attackEnv
	BeforeAll(func(ctx context.Context) { env = newAttackEnvWithPolicy(ctx) }, NodeTimeout(startTimeout))

	It("creates what the CPI creates", func(ctx context.Context) {
		for what, try := range LegitimateTries() {
			Expect(try(ctx, env.confinedAttacker(ctx))).To(Succeed(), what)
		}
	})

	It("succeeds with the attacks that docs/trust.md lists as possible, and with no others", func(ctx context.Context) {
		var wrong []string
		listed := 0
		for _, attack := range env.supportedAttacks() {
			a := env.confinedAttacker(ctx, attack.Limits)
			if err := attack.CheckOutcome(attack.Try(ctx, a), true, false); err != nil {
				wrong = append(wrong, err.Error())
			}
			if attack.Possible() {
				listed++
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
		all := len(env.supportedAttacks())
		AddReportEntry(fmt.Sprintf("attacks: %d refused: %d listed: %d", all, all-listed, listed), ReportEntryVisibilityAlways)
	}, NodeTimeout(5*time.Minute))

	It("is refused what a limit refuses", func(ctx context.Context) {
		var wrong []string
		for _, attack := range env.supportedAttacks() {
			if attack.RefusingLimits != nil {
				if err := attack.CheckOutcome(attack.Try(ctx, env.confinedAttacker(ctx, attack.Limits, attack.RefusingLimits)), true, true); err != nil {
					wrong = append(wrong, err.Error())
				}
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("is refused nothing in a namespace without the label", func(ctx context.Context) {
		env.confinedAttacker(ctx) // the policy holds elsewhere
		Expect(tryVMPod(addHostPath("/"))(ctx, env.newAttacker(ctx, nil))).To(Succeed())
	})

	It("has neighbors who need no ConfigMaps in a namespace without the label", func(ctx context.Context) {
		env.confinedAttacker(ctx) // the policy holds elsewhere
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: env.nextNamespace()}}
		_, err := env.cluster.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err = env.cluster.CoreV1().Services(namespace.Name).Create(ctx, service, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("Without the admission policy, somebody with the token of the CPI's service account", Ordered, ContinueOnFailure, func() {
	var env *attackEnv
	BeforeAll(func(ctx context.Context) { env = newAttackEnv(ctx) }, NodeTimeout(startTimeout))

	It("succeeds with all attacks to which the account has a right", func(ctx context.Context) {
		a := env.newAttacker(ctx, nil)
		var wrong []string
		for _, attack := range env.supportedAttacks() {
			if err := attack.CheckOutcome(attack.Try(ctx, a), false, false); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("succeeds with an attack where the policy lacks one of its rules, or is not asked about a kind", func(ctx context.Context) {
		// Each hole is a user's, for whom the one policy lacks something, and the others hold as they are.
		fullPolicy := env.policy.ScopedCopy("-whole", func(policy string) string {
			return "'attackers' in request.userInfo.groups && !request.userInfo.username.startsWith('" + policy + "-')"
		})
		Expect(fullPolicy.Create(ctx, env.cluster)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(fullPolicy.Delete(ctx, env.cluster)).To(Succeed()) })
		Eventually(fullPolicy.CheckEnforced).WithContext(ctx).WithArguments(env.newImpersonator(ctx, "anybody")).Should(Succeed())
		var gaps []*policyGap
		for i, rule := range env.policy.Rules() {
			if !slices.Contains(kindsWithoutRight, strings.TrimPrefix(rule.Name, "UPDATE ")) {
				gaps = append(gaps, env.newPolicyGap(ctx, fmt.Sprintf("-%d", i), rule))
			}
		}
		var uncovered []string
		var table strings.Builder
		columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, gap := range gaps {
			found := gap.findAttack(ctx)
			if found == "" {
				uncovered = append(uncovered, gap.rule.Policy+" "+gap.rule.Name)
			}
			fmt.Fprintf(columns, "%s\t%s\t%s\n", gap.rule.Policy, gap.rule.Name, found)
		}
		Expect(columns.Flush()).To(Succeed())
		AddReportEntry("what is missing, and an attack that finds it", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(uncovered).To(BeEmpty())
	}, NodeTimeout(15*time.Minute))
})

// kindsWithoutRight are the kinds that docs/rbac*.yaml give no right to change: what the policy says of that is for those who give it.
var kindsWithoutRight = []string{"daemonsets", "ippools", "ipreservations"}

// policyGap is a user for whom the policy lacks a rule.
type policyGap struct {
	rule       Rule
	policy     Policy
	attacker   *Attacker
	candidates []Attack // that nothing else refuses
}

func (env *attackEnv) newPolicyGap(ctx context.Context, suffix string, rule Rule) *policyGap {
	GinkgoHelper()
	g := &policyGap{rule: rule, candidates: slices.DeleteFunc(env.supportedAttacks(), func(attack Attack) bool { return !rule.refuses(attack) })}
	Expect(g.candidates).NotTo(BeEmpty(), "%s %s", rule.Policy, rule.Name)
	first := g.candidates[0] // the namespace has its limits
	g.candidates = slices.DeleteFunc(g.candidates, func(attack Attack) bool {
		return !maps.Equal(attack.Limits, first.Limits) || !maps.Equal(attack.RefusingLimits, first.RefusingLimits)
	})
	user := rule.Policy + suffix
	g.policy = env.policy.Without(rule).Only(rule.Policy).ScopedCopy(suffix, func(string) string { return "request.userInfo.username == '" + user + "'" })
	Expect(g.policy.Create(ctx, env.cluster)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(g.policy.Delete(ctx, env.cluster)).To(Succeed()) })
	g.attacker = env.newImpersonator(ctx, user, first.Limits, first.RefusingLimits)
	return g
}

// newImpersonator is somebody with this name, and with the rights of the service account, in a namespace with these limits.
func (env *attackEnv) newImpersonator(ctx context.Context, user string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	name := fmt.Sprint(limits)
	if env.attackers[name] == nil {
		env.attackers[name] = env.newAttacker(ctx, nil, limits...)
		namespace := env.attackers[name].Namespace
		for _, role := range []string{"bosh-cpi", "bosh-cpi-prefetch"} {
			_, err := env.plane.Kubectl(ctx, "create", "rolebinding", role+"-attackers", "--role="+role, "--group=attackers", "--namespace="+namespace)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := env.plane.Kubectl(ctx, "create", "clusterrolebinding", namespace, "--clusterrole=bosh-cpi-networks-"+namespace, "--group=attackers")
		Expect(err).NotTo(HaveOccurred())
	}
	a := *env.attackers[name]
	config := rest.CopyConfig(env.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"attackers"}}
	Expect(a.useCredentials(config)).To(Succeed())
	return &a
}

// findAttack returns the name of an attack that succeeds there.
func (g *policyGap) findAttack(ctx context.Context) string {
	GinkgoHelper()
	Eventually(g.policy.CheckEnforced).WithContext(ctx).WithArguments(g.attacker).Should(Succeed(), "%s without %s", g.rule.Policy, g.rule.Name)
	for _, attack := range g.candidates {
		if attack.Try(ctx, g.attacker) == nil {
			return attack.Name
		}
	}
	return ""
}

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

func TestAttacks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "attacks")
}

const root = "../.."

// startTimeout bounds the start of a control plane.
const startTimeout = 2 * time.Minute

// crdManifest returns a minimal CustomResourceDefinition.
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

// attackEnv is an API server with namespaces for attackers.
type attackEnv struct {
	plane          *embedded.ControlPlane
	admin          *rest.Config
	cluster        kubernetes.Interface
	policy         Policy
	minor          int
	attackers      map[string]*Attacker
	namespaceCount int
}

// protected is the API server with the policy.
var protected *attackEnv

var _ = BeforeSuite(func(ctx context.Context) {
	protected = newAttackEnv(ctx)
	policy, err := os.ReadFile(root + "/manifests/admission-policy.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(protected.plane.Apply(ctx, string(policy))).To(Succeed())
}, NodeTimeout(startTimeout))

// newAttackEnv starts an API server without the policy.
func newAttackEnv(ctx context.Context) *attackEnv {
	GinkgoHelper()
	plane, err := embedded.NewTestControlPlane(filepath.Join(GinkgoT().TempDir(), "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	Expect(plane.Apply(ctx, crdManifest("snapshot.storage.k8s.io", "VolumeSnapshot", "Namespaced"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())

	env := &attackEnv{plane: plane, attackers: map[string]*Attacker{}}
	env.admin, _, err = plane.AdminClient()
	Expect(err).NotTo(HaveOccurred())
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

// nextNamespace returns the name for a new namespace.
func (env *attackEnv) nextNamespace() string {
	env.namespaceCount++
	return fmt.Sprintf("attacks-%d", env.namespaceCount)
}

// newAttacker returns an attacker in a new namespace with these labels and limits.
func (env *attackEnv) newAttacker(ctx context.Context, labels map[string]string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	merged := map[string]string{}
	for _, group := range limits {
		maps.Copy(merged, group)
	}
	a, err := NewAttacker(ctx, env.admin, root, env.nextNamespace(), labels, merged)
	Expect(err).NotTo(HaveOccurred())
	return a
}

// confinedAttacker returns an attacker in a namespace with the policy and these limits. The same limits return the same attacker.
func (env *attackEnv) confinedAttacker(ctx context.Context, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	key := fmt.Sprint(limits)
	if env.attackers[key] == nil {
		env.attackers[key] = env.newAttacker(ctx, EnforcedLabels, limits...)
		Eventually(env.policy.CheckEnforced).WithContext(ctx).WithArguments(env.attackers[key]).Should(Succeed())
	}
	return env.attackers[key]
}

// supportedAttacks returns the attacks that this version of Kubernetes supports.
func (env *attackEnv) supportedAttacks() []Attack {
	return slices.DeleteFunc(All(), func(attack Attack) bool { return attack.MinMinor > env.minor })
}

var _ = Describe("With the admission policy, a user with the CPI's token", func() {
	It("can create the objects of the CPI", func(ctx context.Context) {
		for name, request := range RegularRequests() {
			Expect(request(ctx, protected.confinedAttacker(ctx))).To(Succeed(), name)
		}
	})

	It("can run exclusivity checks in an attachment Pod after an administrator debugged it", func(ctx context.Context) {
		a := protected.newAttacker(ctx, EnforcedLabels)
		Eventually(protected.policy.CheckEnforced).WithContext(ctx).WithArguments(a).Should(Succeed())
		admin, err := kubernetes.NewForConfig(protected.admin)
		Expect(err).NotTo(HaveOccurred())
		debug := []byte(`{"spec": {"ephemeralContainers": [{"name": "debugger-1", "image": "busybox", "terminationMessagePolicy": "File"}]}}`)
		_, err = admin.CoreV1().Pods(a.Namespace).Patch(
			ctx, a.existingAttachment.Name, types.StrategicMergePatchType, debug, metav1.PatchOptions{}, "ephemeralcontainers")
		Expect(err).NotTo(HaveOccurred())
		Expect(RegularRequests()["exclusivity check"](ctx, a)).To(Succeed())
	})

	It("succeeds only with the attacks that the docs list as possible", func(ctx context.Context) {
		var unexpected []string
		succeeding := 0
		for _, attack := range protected.supportedAttacks() {
			a := protected.confinedAttacker(ctx, attack.Limits)
			if err := attack.CheckOutcome(attack.Try(ctx, a), true, false); err != nil {
				unexpected = append(unexpected, err.Error())
			}
			if attack.Possible() {
				succeeding++
			}
		}
		Expect(unexpected).To(BeEmpty(), strings.Join(unexpected, "\n"))
		total := len(protected.supportedAttacks())
		AddReportEntry(fmt.Sprintf("attacks: %d refused: %d listed: %d", total, total-succeeding, succeeding), ReportEntryVisibilityAlways)
	}, NodeTimeout(5*time.Minute))

	It("fails with the attacks that a limit prevents", func(ctx context.Context) {
		var unexpected []string
		for _, attack := range protected.supportedAttacks() {
			if attack.RejectingLimits == nil {
				continue
			}
			a := protected.confinedAttacker(ctx, attack.Limits, attack.RejectingLimits)
			if err := attack.CheckOutcome(attack.Try(ctx, a), true, true); err != nil {
				unexpected = append(unexpected, err.Error())
			}
		}
		Expect(unexpected).To(BeEmpty(), strings.Join(unexpected, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("can create VMs and attachments that conform to limits", func(ctx context.Context) {
		a := protected.confinedAttacker(ctx, map[string]string{"privileged_vms": "false", "node_selector": "dedicated=bosh\n", "nodes": "node-of-bosh\n"})
		Expect(tryVMPod(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = nil
			pod.Spec.NodeSelector, pod.Spec.Affinity = map[string]string{"dedicated": "bosh"}, nodeAffinityTo("node-of-bosh")
		})(ctx, a)).To(Succeed())
		Expect(tryHelperPod(func(pod *corev1.Pod) { pod.Spec.Affinity = nodeAffinityTo("node-of-bosh") })(ctx, a)).To(Succeed())
	})

	It("is restricted by limits that change while the namespace is in use", func(ctx context.Context) {
		a := protected.newAttacker(ctx, EnforcedLabels)
		Eventually(protected.policy.CheckEnforced).WithContext(ctx).WithArguments(a).Should(Succeed())
		unchanged := func(*corev1.Pod) {}
		Expect(tryVMPod(unchanged)(ctx, a)).To(Succeed())
		limits, err := protected.cluster.CoreV1().ConfigMaps(a.Namespace).Get(ctx, "bosh-cpi-limits", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		limits.Data["node_selector"] = "dedicated=bosh"
		_, err = protected.cluster.CoreV1().ConfigMaps(a.Namespace).Update(ctx, limits, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { return tryVMPod(unchanged)(ctx, a) }).WithContext(ctx).Should(MatchError(ContainSubstring("rule node-selector:")))
	})

	It("is not restricted in a namespace without the label", func(ctx context.Context) {
		protected.confinedAttacker(ctx) // waits until the policy is enforced
		Expect(tryVMPod(addHostPath("/"))(ctx, protected.newAttacker(ctx, nil))).To(Succeed())
	})

	It("does not affect other users in a namespace without the label, which has no ConfigMaps", func(ctx context.Context) {
		protected.confinedAttacker(ctx) // waits until the policy is enforced
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: protected.nextNamespace()}}
		_, err := protected.cluster.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err = protected.cluster.CoreV1().Services(namespace.Name).Create(ctx, service, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("Without the admission policy, a user with the CPI's token", Ordered, ContinueOnFailure, func() {
	var env *attackEnv
	BeforeAll(func(ctx context.Context) { env = newAttackEnv(ctx) }, NodeTimeout(startTimeout))

	It("succeeds with all attacks that the service account has the permissions for", func(ctx context.Context) {
		a := env.newAttacker(ctx, nil)
		var unexpected []string
		for _, attack := range env.supportedAttacks() {
			if err := attack.CheckOutcome(attack.Try(ctx, a), false, false); err != nil {
				unexpected = append(unexpected, err.Error())
			}
		}
		Expect(unexpected).To(BeEmpty(), strings.Join(unexpected, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("succeeds with an attack if the policy lacks one of its rules, operations or kinds", func(ctx context.Context) {
		// For the user of each gap, one policy lacks a rule. The other policies are complete.
		fullPolicy := env.policy.ScopedCopy("-complete", func(policy string) string {
			return "'attackers' in request.userInfo.groups && !request.userInfo.username.startsWith('" + policy + "-')"
		})
		Expect(fullPolicy.Create(ctx, env.cluster)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(fullPolicy.Delete(ctx, env.cluster)).To(Succeed()) })
		Eventually(fullPolicy.CheckEnforced).WithContext(ctx).WithArguments(env.newImpersonator(ctx, "anybody")).Should(Succeed())
		var gaps []*policyGap
		for i, rule := range env.policy.Rules() {
			gaps = append(gaps, env.newPolicyGap(ctx, fmt.Sprintf("-%d", i), rule))
		}
		var uncovered []string
		var table strings.Builder
		columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, gap := range gaps {
			attack := gap.findAttack(ctx)
			if attack == "" {
				uncovered = append(uncovered, gap.rule.Policy+" "+gap.rule.Name)
			}
			fmt.Fprintf(columns, "%s\t%s\t%s\n", gap.rule.Policy, gap.rule.Name, attack)
		}
		Expect(columns.Flush()).To(Succeed())
		AddReportEntry("missing rules, and attacks that succeed without them", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(uncovered).To(BeEmpty())
	}, NodeTimeout(15*time.Minute))
})

// policyGap is a user for whom the policy lacks a rule.
type policyGap struct {
	rule       Rule
	policy     Policy
	attacker   *Attacker
	candidates []Attack // attacks that only this rule rejects
}

// newPolicyGap creates a copy of the policy without the rule for a new user, and an attacker that authenticates as this user.
func (env *attackEnv) newPolicyGap(ctx context.Context, suffix string, rule Rule) *policyGap {
	GinkgoHelper()
	g := &policyGap{rule: rule}
	g.candidates = slices.DeleteFunc(env.supportedAttacks(), func(attack Attack) bool { return !rule.rejects(attack) })
	Expect(g.candidates).NotTo(BeEmpty(), "%s %s", rule.Policy, rule.Name)
	first := g.candidates[0] // determines the limits of the namespace
	g.candidates = slices.DeleteFunc(g.candidates, func(attack Attack) bool {
		return !maps.Equal(attack.Limits, first.Limits) || !maps.Equal(attack.RejectingLimits, first.RejectingLimits)
	})
	user := rule.Policy + suffix
	g.policy = env.policy.Without(rule).Only(rule.Policy).ScopedCopy(suffix, func(string) string {
		return "request.userInfo.username == '" + user + "'"
	})
	Expect(g.policy.Create(ctx, env.cluster)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(g.policy.Delete(ctx, env.cluster)).To(Succeed()) })
	g.attacker = env.newImpersonator(ctx, user, first.Limits, first.RejectingLimits)
	return g
}

// newImpersonator returns an attacker as this user, with the permissions of the service account, in a namespace with these limits.
func (env *attackEnv) newImpersonator(ctx context.Context, user string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	key := fmt.Sprint(limits)
	if env.attackers[key] == nil {
		env.attackers[key] = env.newAttacker(ctx, nil, limits...)
		namespace := env.attackers[key].Namespace
		_, err := env.plane.Kubectl(ctx, "create", "rolebinding", "attackers", "--role=bosh-cpi", "--group=attackers", "--namespace="+namespace)
		Expect(err).NotTo(HaveOccurred())
	}
	a := *env.attackers[key]
	config := rest.CopyConfig(env.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"attackers"}}
	Expect(a.useCredentials(config)).To(Succeed())
	return &a
}

// findAttack returns the name of an attack that succeeds without the rule, or "".
func (g *policyGap) findAttack(ctx context.Context) string {
	GinkgoHelper()
	Eventually(g.policy.CheckEnforced).WithContext(ctx).WithArguments(g.attacker).Should(Succeed(),
		"%s without %s", g.rule.Policy, g.rule.Name)
	for _, attack := range g.candidates {
		if attack.Try(ctx, g.attacker) == nil {
			return attack.Name
		}
	}
	return ""
}

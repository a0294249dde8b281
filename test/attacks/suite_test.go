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

// labTime is how long a control plane may take to start.
const labTime = 2 * time.Minute

// crd is as much of a kind's API as the server has to know.
func crd(group, kind, scope string) string {
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

// lab is an API server with namespaces to attack.
type lab struct {
	plane   *embedded.ControlPlane
	admin   *rest.Config
	cluster kubernetes.Interface
	policy  Policy
	minor   int
	made    map[string]*Attacker
	names   int
}

// newLab is a lab in which the policy does not hold.
func newLab(ctx context.Context) *lab {
	GinkgoHelper()
	plane, err := embedded.NewTestControlPlane(filepath.Join(GinkgoT().TempDir(), "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	Expect(plane.Apply(ctx, crd("crd.projectcalico.org", "IPPool", "Cluster")+crd("crd.projectcalico.org", "IPReservation", "Cluster")+
		crd("snapshot.storage.k8s.io", "VolumeSnapshot", "Namespaced"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())

	l := &lab{plane: plane, made: map[string]*Attacker{}}
	l.admin, err = clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	l.admin.QPS = -1
	l.admin.WarningHandler = rest.NoWarnings{}
	l.cluster, err = kubernetes.NewForConfig(l.admin)
	Expect(err).NotTo(HaveOccurred())
	l.policy, err = ReadPolicy(root)
	Expect(err).NotTo(HaveOccurred())
	version, err := l.cluster.Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Sscan(version.Minor, &l.minor)
	Expect(err).NotTo(HaveOccurred())
	return l
}

// newConfinedLab is a lab in which the policy holds.
func newConfinedLab(ctx context.Context) *lab {
	GinkgoHelper()
	l := newLab(ctx)
	raw, err := os.ReadFile(root + "/manifests/admission-policy.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(l.plane.Apply(ctx, string(raw))).To(Succeed())
	return l
}

// next is the name of a new namespace.
func (l *lab) next() string {
	l.names++
	return fmt.Sprintf("world-%d", l.names)
}

// attacker is somebody with the token in a new namespace with these labels and limits.
func (l *lab) attacker(ctx context.Context, labels map[string]string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	all := map[string]string{}
	for _, each := range limits {
		maps.Copy(all, each)
	}
	a, err := NewAttacker(ctx, l.admin, root, l.next(), labels, all)
	Expect(err).NotTo(HaveOccurred())
	return a
}

// with is somebody with the token in a namespace with the policy and these limits; the same one for the same limits.
func (l *lab) with(ctx context.Context, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	name := fmt.Sprint(limits)
	if l.made[name] == nil {
		l.made[name] = l.attacker(ctx, Enforced, limits...)
		Eventually(l.policy.Holds).WithContext(ctx).WithArguments(l.made[name]).Should(Succeed())
	}
	return l.made[name]
}

// attacks are those that are about something that this API server has.
func (l *lab) attacks() []Attack {
	return slices.DeleteFunc(All(), func(attack Attack) bool { return attack.Since > l.minor })
}

var _ = Describe("With the admission policy, somebody with the token of the CPI's service account", Ordered, ContinueOnFailure, func() {
	var l *lab
	BeforeAll(func(ctx context.Context) { l = newConfinedLab(ctx) }, NodeTimeout(labTime))

	It("creates what the CPI creates", func(ctx context.Context) {
		for what, try := range Genuine() {
			Expect(try(ctx, l.with(ctx))).To(Succeed(), what)
		}
	})

	It("succeeds with the attacks that docs/trust.md lists as possible, and with no others", func(ctx context.Context) {
		var wrong []string
		listed := 0
		for _, attack := range l.attacks() {
			a := l.with(ctx, attack.Given)
			if err := attack.Judge(attack.Try(ctx, a), true, false); err != nil {
				wrong = append(wrong, err.Error())
			}
			if attack.Possible() {
				listed++
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
		all := len(l.attacks())
		AddReportEntry(fmt.Sprintf("attacks: %d refused: %d listed: %d", all, all-listed, listed), ReportEntryVisibilityAlways)
	}, NodeTimeout(5*time.Minute))

	It("is refused what a limit refuses", func(ctx context.Context) {
		var wrong []string
		for _, attack := range l.attacks() {
			if attack.Bound != nil {
				if err := attack.Judge(attack.Try(ctx, l.with(ctx, attack.Given, attack.Bound)), true, true); err != nil {
					wrong = append(wrong, err.Error())
				}
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("is refused nothing in a namespace without the label", func(ctx context.Context) {
		l.with(ctx) // the policy holds elsewhere
		Expect(vm(hostPath("/"))(ctx, l.attacker(ctx, nil))).To(Succeed())
	})

	It("has neighbors who need no ConfigMaps in a namespace without the label", func(ctx context.Context) {
		l.with(ctx) // the policy holds elsewhere
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.next()}}
		_, err := l.cluster.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err = l.cluster.CoreV1().Services(namespace.Name).Create(ctx, service, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("Without the admission policy, somebody with the token of the CPI's service account", Ordered, ContinueOnFailure, func() {
	var l *lab
	BeforeAll(func(ctx context.Context) { l = newLab(ctx) }, NodeTimeout(labTime))

	It("succeeds with all attacks to which the account has a right", func(ctx context.Context) {
		a := l.attacker(ctx, nil)
		var wrong []string
		for _, attack := range l.attacks() {
			if err := attack.Judge(attack.Try(ctx, a), false, false); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
	}, NodeTimeout(5*time.Minute))

	It("succeeds with an attack where the policy lacks one of its rules, or is not asked about a kind", func(ctx context.Context) {
		// Each hole is a user's, for whom the one policy lacks something, and the others hold as they are.
		whole := l.policy.For("-whole", func(policy string) string {
			return "'attackers' in request.userInfo.groups && !request.userInfo.username.startsWith('" + policy + "-')"
		})
		Expect(whole.Create(ctx, l.cluster)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(whole.Delete(ctx, l.cluster)).To(Succeed()) })
		Eventually(whole.Holds).WithContext(ctx).WithArguments(l.impersonator(ctx, "anybody")).Should(Succeed())
		var holes []*hole
		for i, rule := range l.policy.Rules() {
			if !slices.Contains(noRight, strings.TrimPrefix(rule.Name, "UPDATE ")) {
				holes = append(holes, l.newHole(ctx, fmt.Sprintf("-%d", i), rule))
			}
		}
		var unseen []string
		var table strings.Builder
		columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, hole := range holes {
			found := hole.find(ctx)
			if found == "" {
				unseen = append(unseen, hole.rule.Policy+" "+hole.rule.Name)
			}
			fmt.Fprintf(columns, "%s\t%s\t%s\n", hole.rule.Policy, hole.rule.Name, found)
		}
		Expect(columns.Flush()).To(Succeed())
		AddReportEntry("what is missing, and an attack that finds it", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(unseen).To(BeEmpty())
	}, NodeTimeout(15*time.Minute))
})

// noRight are the kinds that docs/rbac*.yaml give no right to change: what the policy says of that is for those who give it.
var noRight = []string{"daemonsets", "ippools", "ipreservations"}

// hole is a user for whom the policy lacks a rule.
type hole struct {
	rule       Rule
	policy     Policy
	attacker   *Attacker
	candidates []Attack // that nothing else refuses
}

func (l *lab) newHole(ctx context.Context, suffix string, rule Rule) *hole {
	GinkgoHelper()
	h := &hole{rule: rule, candidates: slices.DeleteFunc(l.attacks(), func(attack Attack) bool { return !rule.refuses(attack) })}
	Expect(h.candidates).NotTo(BeEmpty(), "%s %s", rule.Policy, rule.Name)
	first := h.candidates[0] // the namespace has its limits
	h.candidates = slices.DeleteFunc(h.candidates, func(attack Attack) bool {
		return !maps.Equal(attack.Given, first.Given) || !maps.Equal(attack.Bound, first.Bound)
	})
	user := rule.Policy + suffix
	h.policy = l.policy.Without(rule).Part(rule.Policy).For(suffix, func(string) string { return "request.userInfo.username == '" + user + "'" })
	Expect(h.policy.Create(ctx, l.cluster)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.policy.Delete(ctx, l.cluster)).To(Succeed()) })
	h.attacker = l.impersonator(ctx, user, first.Given, first.Bound)
	return h
}

// impersonator is somebody with this name, and with the rights of the service account, in a namespace with these limits.
func (l *lab) impersonator(ctx context.Context, user string, limits ...map[string]string) *Attacker {
	GinkgoHelper()
	name := fmt.Sprint(limits)
	if l.made[name] == nil {
		l.made[name] = l.attacker(ctx, nil, limits...)
		namespace := l.made[name].Namespace
		for _, role := range []string{"bosh-cpi", "bosh-cpi-prefetch"} {
			_, err := l.plane.Kubectl(ctx, "create", "rolebinding", role+"-attackers", "--role="+role, "--group=attackers", "--namespace="+namespace)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := l.plane.Kubectl(ctx, "create", "clusterrolebinding", namespace, "--clusterrole=bosh-cpi-networks-"+namespace, "--group=attackers")
		Expect(err).NotTo(HaveOccurred())
	}
	a := *l.made[name]
	config := rest.CopyConfig(l.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"attackers"}}
	Expect(a.as(config)).To(Succeed())
	return &a
}

// find returns the name of an attack that succeeds there.
func (h *hole) find(ctx context.Context) string {
	GinkgoHelper()
	Eventually(h.policy.Holds).WithContext(ctx).WithArguments(h.attacker).Should(Succeed(), "%s without %s", h.rule.Policy, h.rule.Name)
	for _, attack := range h.candidates {
		if attack.Try(ctx, h.attacker) == nil {
			return attack.Name
		}
	}
	return ""
}

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/director"
)

// checkReport is what -check says, and the status that it exits with.
type checkReport struct {
	results map[string]preflight.Result
	order   []string
	status  int
}

// runCheck runs the program with -check -json.
func runCheck(ctx context.Context, d *director.Director, args ...string) checkReport {
	GinkgoHelper()
	out, status := runCheckProgram(ctx, d, append([]string{"-json"}, args...)...)
	var results []preflight.Result
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(&results)).To(Succeed(), string(out))
	report := checkReport{results: map[string]preflight.Result{}, status: status}
	for _, result := range results {
		report.results[result.Check] = result
		report.order = append(report.order, result.Check)
	}
	return report
}

func runCheckProgram(ctx context.Context, d *director.Director, args ...string) (out []byte, status int) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, d.CPI, append([]string{"-configPath", d.Config, "-check", "-image", stemcellCID}, args...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, ended.ExitCode()
	}
	Expect(err).NotTo(HaveOccurred(), stderr.String())
	return out, 0
}

// matchResult matches a check's result by its verdict and by words of its detail and of its advice.
func matchResult(verdict preflight.Verdict, detail, advice string) OmegaMatcher {
	return And(HaveField("Verdict", verdict), HaveField("Detail", ContainSubstring(detail)), HaveField("Advice", ContainSubstring(advice)))
}

// grantCheckRights gives the world's service account what rbac-check.yaml does.
func (env testEnv) grantCheckRights(ctx context.Context) {
	GinkgoHelper()
	applyRBAC(ctx, env.namespace, readRBACFiles(checkRBACFile))
	waitForRights(ctx, env.namespace,
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "resourcequotas", Namespace: env.namespace},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "csinodes", Group: "storage.k8s.io"})
}

func quantity(value string) resource.Quantity { return resource.MustParse(value) }

var _ = Describe("A check of the cluster", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("holds where the CPI works, with its own rights, and makes nothing", func(ctx context.Context) {
		report := runCheck(ctx, env.Director)
		Expect(report.status).To(BeZero())
		var names []string
		for _, check := range preflight.Checks() {
			names = append(names, check.Name)
			if check.Kind == preflight.Required {
				Expect(report.results[check.Name].Verdict).NotTo(Equal(preflight.Fails), "%v", report.results[check.Name])
			}
		}
		Expect(report.order).To(Equal(names))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})

	It("says of what it is not allowed to look at which rights to give, and that is no failure", func(ctx context.Context) {
		report := runCheck(ctx, env.Director)
		for _, name := range []string{"quotas", "limit-ranges", "pod-slots", "attach-limits"} {
			Expect(report.results[name]).To(matchResult(preflight.Unknown, "not allowed to look", "docs/rbac-check.yaml"), name)
		}
		Expect(report.status).To(BeZero())
	})

	It("is a table for people, with what to do below what is there", func(ctx context.Context) {
		out, status := runCheckProgram(ctx, env.Director)
		Expect(status).To(BeZero())
		Expect(string(out)).To(MatchRegexp(`(?m)^CHECK +KIND +RESULT +WHAT IS THERE, AND WHAT TO DO$`))
		Expect(string(out)).To(MatchRegexp(`(?m)^api-version +advised +ok +v1\.`))
		Expect(string(out)).To(MatchRegexp(`(?m)^quotas +required +unknown +not allowed.*\n +→ to have it looked at, apply docs/rbac-check.yaml$`))
		GinkgoWriter.Println(string(out))
	})

	DescribeTable("of what calls make says what refuses it, when it is",
		func(ctx context.Context, quota string, checks ...string) {
			env.createQuota(ctx, corev1.ResourceList{corev1.ResourceName(quota): {}})
			report := runCheck(ctx, env.Director)
			for _, name := range checks {
				Expect(report.results[name]).To(matchResult(preflight.Fails, "exceeded quota: small", "raise the ResourceQuota"), name)
			}
			required := slices.ContainsFunc(checks, func(name string) bool { return report.results[name].Kind == preflight.Required })
			Expect(report.status).To(Equal(map[bool]int{true: 1}[required]))
		},
		Entry("Pods", "pods", "create-vm", "create-attachment", "create-copy", "create-reboot", "create-flush"),
		Entry("settings", "count/secrets", "create-settings"),
		Entry("disks", "persistentvolumeclaims", "create-disk", "storage-classes"),
		Entry("Services", "services", "create-service"),
		Entry("budgets", "count/poddisruptionbudgets.policy", "create-budget"),
		Entry("templates", "count/podtemplates", "create-template"),
		Entry("snapshots", "count/volumesnapshots.snapshot.storage.k8s.io", "create-snapshot"),
	)

	It("names the label that a namespace without privileged Pods is to have", func(ctx context.Context) {
		_, err := cluster.CoreV1().Namespaces().Patch(ctx, env.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		report := runCheck(ctx, env.Director)
		for _, name := range []string{"create-vm", "create-attachment", "create-copy", "create-reboot", "create-flush"} {
			Expect(report.results[name]).To(matchResult(preflight.Fails, "violates PodSecurity",
				"kubectl label namespace "+env.namespace+" pod-security.kubernetes.io/enforce=privileged"), name)
		}
		Expect(report.status).To(Equal(1))
	})

	It("says which webhook refuses what", func(ctx context.Context) {
		env.denyPods(ctx, "no node's network here", func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
		Eventually(func() preflight.Result { return runCheck(ctx, env.Director).results["create-attachment"] }).WithContext(ctx).Should(
			matchResult(preflight.Fails, `"deny.integration.test" denied the request: no node's network here`, "have the admission webhook"))
		Expect(runCheck(ctx, env.Director).results["create-vm"].Verdict).To(Equal(preflight.OK))
	})

	It("names rights that are missing, and the file that gives them", func(ctx context.Context) {
		role, err := cluster.RbacV1().Roles(env.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return rule.Resources[0] == "secrets" || rule.Resources[0] == "volumesnapshots" || allowsEventCreate(rule)
		})
		_, err = cluster.RbacV1().Roles(env.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.RbacV1().ClusterRoleBindings().Delete(ctx, "bosh-cpi-networks-"+env.namespace, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, env.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("rights", matchResult(preflight.Fails, "missing: secrets (get, create, patch, delete)", `sed -E 's/([- ])bosh$/\1`+env.namespace+"/' docs/rbac.yaml | kubectl apply --namespace "+env.namespace+" -f -")),
			HaveKeyWithValue("rights-snapshots", matchResult(preflight.Fails, "missing: volumesnapshots (get, list, watch, create, patch, delete)", "enable_snapshots")),
			HaveKeyWithValue("rights-events", matchResult(preflight.Fails, "missing: events (create)", "events.enabled: false")),
			HaveKeyWithValue("rights-networks", matchResult(preflight.Fails, "ippools", "docs/rbac-networks.yaml")),
			HaveKeyWithValue("address-pools", matchResult(preflight.Unknown, "not allowed to look", "docs/rbac-networks.yaml")),
		))
		Expect(runCheck(ctx, env.Director).status).To(Equal(1))
	})

	It("counts what a quota leaves, and names what a LimitRange forbids", func(ctx context.Context) {
		env.grantCheckRights(ctx)
		Expect(runCheck(ctx, env.Director).results["quotas"]).To(matchResult(preflight.OK, "has none", ""))
		env.createQuota(ctx, corev1.ResourceList{"pods": quantity("5"), "limits.memory": quantity("2Gi")})
		Expect(runCheck(ctx, env.Director).results["quotas"]).To(matchResult(preflight.Warns, "0 of 2Gi limits.memory used, room for an attachment 2 times", "raise the ResourceQuota"))
		_, err := cluster.CoreV1().LimitRanges(env.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": quantity("512Mi")}}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]preflight.Result { return runCheck(ctx, env.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("limit-ranges", matchResult(preflight.Fails, "a Container may have 512Mi memory, and pods.helper_limits say 1Gi", "lower pods.helper_limits")),
			HaveKeyWithValue("create-attachment", matchResult(preflight.Fails, "maximum memory usage per Container is 512Mi", "pods.helper_limits")),
		))
	})

	It("fails where a quota leaves no Pod", func(ctx context.Context) {
		env.grantCheckRights(ctx)
		env.createQuota(ctx, corev1.ResourceList{"pods": {}})
		report := runCheck(ctx, env.Director)
		Expect(report.results["quotas"]).To(matchResult(preflight.Fails, "0 of 0 pods used, room for a small VM 0 times", "raise the ResourceQuota"))
		Expect(report.status).To(Equal(1))
	})

	It("names disks' classes that are gone, and what a class does not do", func(ctx context.Context) {
		Expect(runCheck(ctx, env.Director).results["storage-classes"]).To(matchResult(preflight.Warns, "standard (the default, integration.test/nothing, does not grow)", "allowVolumeExpansion: true"))
		env.mustCall(ctx, "create_disk", 64, map[string]any{"storage_class": "vanished"}, nil)
		Expect(runCheck(ctx, env.Director).results["storage-classes"]).To(matchResult(preflight.Fails, "the StorageClass vanished, which is gone", "make it again"))
	})

	It("names attachments that were taken away from disks in use, or told to end", func(ctx context.Context) {
		vm, deletedAttachment, endingAttachment := env.createVM(ctx, "one"), env.createDisk(ctx), env.createDisk(ctx)
		for _, disk := range []string{deletedAttachment, endingAttachment} {
			env.mustCall(ctx, "attach_disk", vm, disk)
		}
		Expect(runCheck(ctx, env.Director).results["attachments"].Verdict).To(Equal(preflight.OK))
		env.deletePodAndWait(ctx, deletedAttachment+"-attachment")
		Expect(env.annotatePod(ctx, endingAttachment+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, endingAttachment+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(runCheck(ctx, env.Director).results["attachments"]).To(And(
			matchResult(preflight.Fails, "taken away from used disks: "+deletedAttachment+" of VM "+vm, "-collect -confirm"),
			matchResult(preflight.Fails, "told to end while their disks are used: "+endingAttachment+" of VM "+vm, "")))
		Expect(env.annotatePod(ctx, endingAttachment+"-attachment", "test/stays", nil)).To(Succeed())
	})
})

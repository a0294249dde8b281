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

// report is what -check says, and the status that it exits with.
type report struct {
	results map[string]preflight.Result
	order   []string
	status  int
}

// checked runs the program with -check -json.
func checked(ctx context.Context, d *director.Director, more ...string) report {
	GinkgoHelper()
	out, status := checkOutput(ctx, d, append([]string{"-json"}, more...)...)
	var results []preflight.Result
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(&results)).To(Succeed(), string(out))
	said := report{results: map[string]preflight.Result{}, status: status}
	for _, result := range results {
		said.results[result.Check] = result
		said.order = append(said.order, result.Check)
	}
	return said
}

func checkOutput(ctx context.Context, d *director.Director, more ...string) (out []byte, status int) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, d.CPI, append([]string{"-configPath", d.Config, "-check", "-image", stemcellCID}, more...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, ended.ExitCode()
	}
	Expect(err).NotTo(HaveOccurred(), stderr.String())
	return out, 0
}

// are matches a check's result by its verdict and by words of its detail and of its advice.
func are(verdict preflight.Verdict, detail, advice string) OmegaMatcher {
	return And(HaveField("Verdict", verdict), HaveField("Detail", ContainSubstring(detail)), HaveField("Advice", ContainSubstring(advice)))
}

// mayBeChecked gives the world's service account what rbac-check.yaml does.
func (w world) mayBeChecked(ctx context.Context) {
	GinkgoHelper()
	grant(ctx, w.namespace, rightsDocuments(rightsOfChecks))
	awaitRights(ctx, w.namespace,
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "resourcequotas", Namespace: w.namespace},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "csinodes", Group: "storage.k8s.io"})
}

func amount(of string) resource.Quantity { return resource.MustParse(of) }

var _ = Describe("A check of the cluster", func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("holds where the CPI works, with its own rights, and makes nothing", func(ctx context.Context) {
		said := checked(ctx, w.Director)
		Expect(said.status).To(BeZero())
		var names []string
		for _, check := range preflight.Checks() {
			names = append(names, check.Name)
			if check.Kind == preflight.Required {
				Expect(said.results[check.Name].Verdict).NotTo(Equal(preflight.Fails), "%v", said.results[check.Name])
			}
		}
		Expect(said.order).To(Equal(names))
		Expect(w.objects(ctx)).To(BeEmpty())
	})

	It("says of what it is not allowed to look at which rights to give, and that is no failure", func(ctx context.Context) {
		said := checked(ctx, w.Director)
		for _, name := range []string{"quotas", "limit-ranges", "pod-slots", "attach-limits"} {
			Expect(said.results[name]).To(are(preflight.Unknown, "not allowed to look", "docs/rbac-check.yaml"), name)
		}
		Expect(said.status).To(BeZero())
	})

	It("is a table for people, with what to do below what is there", func(ctx context.Context) {
		out, status := checkOutput(ctx, w.Director)
		Expect(status).To(BeZero())
		Expect(string(out)).To(MatchRegexp(`(?m)^CHECK +KIND +RESULT +WHAT IS THERE, AND WHAT TO DO$`))
		Expect(string(out)).To(MatchRegexp(`(?m)^api-version +advised +ok +v1\.`))
		Expect(string(out)).To(MatchRegexp(`(?m)^quotas +required +unknown +not allowed.*\n +→ to have it looked at, apply docs/rbac-check.yaml$`))
		GinkgoWriter.Println(string(out))
	})

	DescribeTable("of what calls make says what refuses it, when it is",
		func(ctx context.Context, quota string, checks ...string) {
			w.bounded(ctx, corev1.ResourceList{corev1.ResourceName(quota): {}})
			said := checked(ctx, w.Director)
			for _, name := range checks {
				Expect(said.results[name]).To(are(preflight.Fails, "exceeded quota: small", "raise the ResourceQuota"), name)
			}
			required := slices.ContainsFunc(checks, func(name string) bool { return said.results[name].Kind == preflight.Required })
			Expect(said.status).To(Equal(map[bool]int{true: 1}[required]))
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
		_, err := cluster.CoreV1().Namespaces().Patch(ctx, w.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		said := checked(ctx, w.Director)
		for _, name := range []string{"create-vm", "create-attachment", "create-copy", "create-reboot", "create-flush"} {
			Expect(said.results[name]).To(are(preflight.Fails, "violates PodSecurity",
				"kubectl label namespace "+w.namespace+" pod-security.kubernetes.io/enforce=privileged"), name)
		}
		Expect(said.status).To(Equal(1))
	})

	It("says which webhook refuses what", func(ctx context.Context) {
		w.deniesPods(ctx, "no node's network here", func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
		Eventually(func() preflight.Result { return checked(ctx, w.Director).results["create-attachment"] }).WithContext(ctx).Should(
			are(preflight.Fails, `"deny.integration.test" denied the request: no node's network here`, "have the admission webhook"))
		Expect(checked(ctx, w.Director).results["create-vm"].Verdict).To(Equal(preflight.OK))
	})

	It("names rights that are missing, and the file that gives them", func(ctx context.Context) {
		role, err := cluster.RbacV1().Roles(w.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return rule.Resources[0] == "secrets" || rule.Resources[0] == "volumesnapshots" || leavesEvents(rule)
		})
		_, err = cluster.RbacV1().Roles(w.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.RbacV1().ClusterRoleBindings().Delete(ctx, "bosh-cpi-networks-"+w.namespace, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() map[string]preflight.Result { return checked(ctx, w.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("rights", are(preflight.Fails, "missing: secrets (get, create, patch, delete)", `sed -E 's/([- ])bosh$/\1`+w.namespace+"/' docs/rbac.yaml | kubectl apply --namespace "+w.namespace+" -f -")),
			HaveKeyWithValue("rights-snapshots", are(preflight.Fails, "missing: volumesnapshots (get, list, watch, create, patch, delete)", "enable_snapshots")),
			HaveKeyWithValue("rights-events", are(preflight.Fails, "missing: events (create)", "events.enabled: false")),
			HaveKeyWithValue("rights-networks", are(preflight.Fails, "ippools", "docs/rbac-networks.yaml")),
			HaveKeyWithValue("address-pools", are(preflight.Unknown, "not allowed to look", "docs/rbac-networks.yaml")),
		))
		Expect(checked(ctx, w.Director).status).To(Equal(1))
	})

	It("counts what a quota leaves, and names what a LimitRange forbids", func(ctx context.Context) {
		w.mayBeChecked(ctx)
		Expect(checked(ctx, w.Director).results["quotas"]).To(are(preflight.OK, "has none", ""))
		w.bounded(ctx, corev1.ResourceList{"pods": amount("5"), "limits.memory": amount("2Gi")})
		Expect(checked(ctx, w.Director).results["quotas"]).To(are(preflight.Warns, "0 of 2Gi limits.memory used, room for an attachment 2 times", "raise the ResourceQuota"))
		_, err := cluster.CoreV1().LimitRanges(w.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": amount("512Mi")}}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]preflight.Result { return checked(ctx, w.Director).results }).WithContext(ctx).Should(And(
			HaveKeyWithValue("limit-ranges", are(preflight.Fails, "a Container may have 512Mi memory, and pods.helper_limits say 1Gi", "lower pods.helper_limits")),
			HaveKeyWithValue("create-attachment", are(preflight.Fails, "maximum memory usage per Container is 512Mi", "pods.helper_limits")),
		))
	})

	It("fails where a quota leaves no Pod", func(ctx context.Context) {
		w.mayBeChecked(ctx)
		w.bounded(ctx, corev1.ResourceList{"pods": {}})
		said := checked(ctx, w.Director)
		Expect(said.results["quotas"]).To(are(preflight.Fails, "0 of 0 pods used, room for a small VM 0 times", "raise the ResourceQuota"))
		Expect(said.status).To(Equal(1))
	})

	It("names disks' classes that are gone, and what a class does not do", func(ctx context.Context) {
		Expect(checked(ctx, w.Director).results["storage-classes"]).To(are(preflight.Warns, "standard (the default, integration.test/nothing, does not grow)", "allowVolumeExpansion: true"))
		w.must(ctx, "create_disk", 64, map[string]any{"storage_class": "vanished"}, nil)
		Expect(checked(ctx, w.Director).results["storage-classes"]).To(are(preflight.Fails, "the StorageClass vanished, which is gone", "make it again"))
	})

	It("names attachments that were taken away from disks in use, or told to end", func(ctx context.Context) {
		vm, taken, told := w.createVM(ctx, "one"), w.createDisk(ctx), w.createDisk(ctx)
		for _, disk := range []string{taken, told} {
			w.must(ctx, "attach_disk", vm, disk)
		}
		Expect(checked(ctx, w.Director).results["attachments"].Verdict).To(Equal(preflight.OK))
		w.takeAway(ctx, taken+"-attachment")
		Expect(w.annotate(ctx, told+"-attachment", "test/stays", new("yes"))).To(Succeed())
		Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, told+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(checked(ctx, w.Director).results["attachments"]).To(And(
			are(preflight.Fails, "taken away from used disks: "+taken+" of VM "+vm, "-collect -confirm"),
			are(preflight.Fails, "told to end while their disks are used: "+told+" of VM "+vm, "")))
		Expect(w.annotate(ctx, told+"-attachment", "test/stays", nil)).To(Succeed())
	})
})
